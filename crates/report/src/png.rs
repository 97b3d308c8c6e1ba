//! Rendering of SVG as PNG.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::folder::ReportError;

/// The font is part of the program, so that pictures are the same on every machine.
fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
        let family =
            fonts.faces().next().and_then(|face| face.families.first()).map(|family| family.0.clone());
        fonts.set_sans_serif_family(family.unwrap_or_default());
        Arc::new(fonts)
    };
    Arc::clone(FONTS.get_or_init(load))
}

/// Renders an SVG at `scale` times its size.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>, ReportError> {
    let failed = |reason: String| ReportError::Picture { reason };
    let options = Options { fontdb: fonts(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size().to_int_size();
    let (width, height) = (size.width() as f32 * scale, size.height() as f32 * scale);
    let mut pixels = Pixmap::new(width.round() as u32, height.round() as u32)
        .ok_or_else(|| failed(format!("{width} × {height} pixels are too many")))?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Chart, Mark, Series};

    fn dark_pixels(svg: &str) -> usize {
        let picture = Pixmap::decode_png(&png(svg, 1.0).unwrap()).unwrap();
        picture.pixels().iter().filter(|pixel| pixel.red() < 120).count()
    }

    #[test]
    fn text_and_lines_are_drawn() {
        let bare = Chart::new("", Axis::linear(""), Axis::linear(""));
        let named = Chart::new("A title", Axis::linear("time"), Axis::linear("share"));
        let points = vec![(0.0, 0.0), (1.0, 1.0), (2.0, 0.5)];
        let lined = named.clone().with(Series::new("one", Mark::LineAndDots, points));
        let [bare, named, lined] = [bare, named, lined].map(|chart| dark_pixels(&chart.svg()));
        assert!(named > bare + 50 && lined > named + 300, "{bare} {named} {lined}");
    }

    #[test]
    fn invalid_svg_is_rejected() {
        assert!(png("<svg", 1.0).is_err());
    }
}
