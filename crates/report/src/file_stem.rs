//! File names made of names from input.

/// Bytes of the name of a file, without its extension.
const MAX_BYTES: usize = 200;

/// A file name, without its extension, for something with this name: letters, digits, `-`, `_`, `+` and dots that do not
/// come first; everything else becomes `_`. The name comes from input, and would otherwise decide where a file is written.
pub fn file_stem(name: &str) -> String {
    let mut stem = String::new();
    for character in name.chars() {
        let is_kept = character.is_alphanumeric() || matches!(character, '-' | '_' | '+');
        let is_kept = is_kept || character == '.' && !stem.is_empty();
        let character = if is_kept { character } else { '_' };
        if stem.len() + character.len_utf8() > MAX_BYTES {
            break;
        }
        stem.push(character);
    }
    if stem.is_empty() { "_".to_owned() } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_a_directory() {
        assert_eq!(file_stem("1000genome-20200610T041238Z-run0001"), "1000genome-20200610T041238Z-run0001");
        assert_eq!(file_stem("/home/victim/by_name"), "_home_victim_by_name");
        assert_eq!(file_stem("../../victim/rel"), "_._.._victim_rel");
        for name in ["", ".", "..", "/", "a/b", "\0", "a\nb", &"ß".repeat(1_000)] {
            let stem = file_stem(name);
            let path = std::path::Path::new(&stem);
            assert!(path.components().count() == 1 && path.file_name().is_some(), "{name:?}: {stem:?}");
            assert!(stem.len() <= MAX_BYTES && !stem.starts_with('.'), "{name:?}: {stem:?}");
        }
    }
}
