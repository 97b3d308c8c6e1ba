//! A chart as pixels, without text: the input of networks. Rows and parts that share a pixel are blended in proportion to
//! their area, so a chart of 224 × 224 pixels still shows one second of an hour and one task of a hundred thousand.

use super::{Gantt, Part};
use crate::error::Result;

/// RGB pixels, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    pub width: usize,
    pub height: usize,
    pub bytes: Vec<u8>,
}

/// The largest side of an image, in pixels.
pub const MAX_SIDE: usize = 16_384;

/// The chart of Krawczuk et al. (PEARC 2021): one row per job in the order of the file, scaled to the duration of the run,
/// without axes or text.
pub fn draw(gantt: &Gantt, width: usize, height: usize) -> Pixels {
    let mut bytes = vec![255; width * height * 3];
    let n_rows = gantt.rows.len();
    if n_rows == 0 || gantt.seconds <= 0.0 || width == 0 || height == 0 {
        return Pixels { width, height, bytes };
    }
    let scale = width as f64 / gantt.seconds;
    let colours = Part::ALL.map(|part| part.paper_colour().map(f32::from));
    let mut line = vec![0.0f32; width * 3];
    let mut sum = vec![0.0f32; width * 3];
    // A row of pixels blends the rows of the chart in proportion to their overlap with it.
    let rows_per_pixel = n_rows as f64 / height as f64;
    let mut drawn = usize::MAX;
    for (y, out) in bytes.chunks_exact_mut(width * 3).enumerate() {
        let (from, to) = (y as f64 * rows_per_pixel, (y + 1) as f64 * rows_per_pixel);
        let (first, last) = (from as usize, ((to - 1e-9) as usize).min(n_rows - 1));
        if first == last {
            if drawn != first {
                draw_line(gantt, first, scale, &colours, &mut line);
                drawn = first;
            }
            out.iter_mut().zip(&line).for_each(|(out, value)| *out = (value + 0.5) as u8);
            continue;
        }
        sum.fill(0.0);
        for row in first..=last {
            let share = ((to.min(row as f64 + 1.0) - from.max(row as f64)) / rows_per_pixel) as f32;
            if drawn != row {
                draw_line(gantt, row, scale, &colours, &mut line);
                drawn = row;
            }
            sum.iter_mut().zip(&line).for_each(|(sum, value)| *sum += share * value);
        }
        out.iter_mut().zip(&sum).for_each(|(out, value)| *out = (value + 0.5) as u8);
    }
    Pixels { width, height, bytes }
}

fn draw_line(gantt: &Gantt, row: usize, scale: f64, colours: &[[f32; 3]; Part::ALL.len()], line: &mut [f32]) {
    line.fill(0.0);
    let width = line.len() / 3;
    let mut from = 0.0f64;
    for (end, colour) in gantt.rows[row].ends.iter().zip(colours) {
        let to = (end * scale).min(width as f64);
        if to <= from {
            continue;
        }
        let (first, last) = (from as usize, ((to - 1e-9).max(0.0) as usize).min(width - 1));
        if first == last {
            blend(&mut line[first * 3..first * 3 + 3], colour, (to - from) as f32);
        } else {
            blend(&mut line[first * 3..first * 3 + 3], colour, (first as f64 + 1.0 - from) as f32);
            for pixel in line[(first + 1) * 3..last * 3].chunks_exact_mut(3) {
                pixel.copy_from_slice(colour);
            }
            blend(&mut line[last * 3..last * 3 + 3], colour, (to - last as f64) as f32);
        }
        from = to;
    }
}

fn blend(pixel: &mut [f32], colour: &[f32; 3], share: f32) {
    pixel.iter_mut().zip(colour).for_each(|(pixel, colour)| *pixel += share * colour);
}

/// Encodes pixels as PNG.
pub fn png(pixels: &Pixels) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, pixels.width as u32, pixels.height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels.bytes));
    written?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use crate::workflow::{Span, TaskAttempt, TaskRole, WorkflowRun};

    use super::*;

    fn gantt(n_tasks: usize) -> Gantt {
        let attempts = (0..n_tasks).map(|at| TaskAttempt {
            ready: Some(0.0),
            submitted: Some(0.0),
            execution: Span::new(if at % 2 == 0 { 0.0 } else { 50.0 }, 100.0).ok(),
            ..TaskAttempt::new(format!("t_{at}"), TaskRole::Compute, "t", 1)
        });
        Gantt::new(&WorkflowRun {
            name: "run".into(),
            attempts: attempts.collect(),
            ..WorkflowRun::default()
        })
    }

    #[test]
    fn a_row_shows_its_parts_side_by_side() {
        let picture = draw(&gantt(2), 10, 4);
        let pixel = |x: usize, y: usize| &picture.bytes[(y * 10 + x) * 3..][..3];
        assert_eq!(pixel(0, 0), Part::Runtime.paper_colour());
        assert_eq!(pixel(0, 3), Part::Queue.paper_colour());
        assert_eq!(pixel(9, 3), Part::Runtime.paper_colour());
    }

    #[test]
    fn rows_that_share_a_pixel_are_blended() {
        let picture = draw(&gantt(100_000), 4, 8);
        let mean = |a: u8, b: u8| (u16::from(a) + u16::from(b)).div_ceil(2) as u8;
        let [run, queue] = [Part::Runtime, Part::Queue].map(Part::paper_colour);
        for y in 0..8 {
            for channel in 0..3 {
                let found = picture.bytes[y * 12 + channel];
                assert!(found.abs_diff(mean(run[channel], queue[channel])) <= 1, "{found}");
            }
        }
    }
}
