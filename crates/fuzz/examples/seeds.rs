//! Writes the seeds of a target, as files, into a folder: `seeds TARGET FOLDER`; without a word,
//! the names of all targets.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let Some(name) = words.next() else {
        vfield_fuzz::TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    };
    let target =
        vfield_fuzz::named(&name).ok_or_else(|| std::io::Error::other(format!("there is no target {name}")))?;
    let folder = PathBuf::from(words.next().ok_or_else(|| std::io::Error::other("no folder is given"))?);
    std::fs::create_dir_all(&folder)?;
    for seed in (target.seeds)() {
        std::fs::write(folder.join(blake3::hash(&seed).to_hex().as_str()), &seed)?;
    }
    Ok(())
}
