//! The known word that somebody who mistyped one most likely meant.

/// The one of `known` that is nearest to `word`, if it is near: at most one letter in three is
/// another, missing, added, or in its neighbour's place.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LENGTH_MAX).collect();
    let far = (word.len() / 3).max(1);
    let near = known.into_iter().map(|known| (distance(&word, &known.chars().collect::<Vec<_>>()), known));
    near.filter(|(distance, _)| *distance <= far).min().map(|(_, known)| known)
}

/// Longer words are no mistyped ones.
const LENGTH_MAX: usize = 64;

/// How many letters have to be changed, added, dropped or swapped with their neighbour (Damerau and
/// Levenshtein, each place changed once).
fn distance(from: &[char], to: &[char]) -> usize {
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (i, letter) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in to.iter().enumerate() {
            let changed = rows[i][j] + usize::from(letter != other);
            let mut least = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == to[j - 1] && from[i - 1] == *other {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_another_word_is_not() {
        let known = ["store", "listen", "json", "join-boost", "io-timeout"];
        for (word, meant) in [
            ("stroe", Some("store")),
            ("sotre", Some("store")),
            ("stor", Some("store")),
            ("lsten", Some("listen")),
            ("join_boost", Some("join-boost")),
            ("jsn", Some("json")),
            ("nonsense", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), known), None);
    }
}
