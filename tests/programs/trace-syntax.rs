//! Parses a Rust source again and again, and prints what it holds: `trace-syntax FILE ROUNDS`. Built with the crate `syn`.

use quote::ToTokens;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_default();
    let rounds: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file}: {error}");
            std::process::exit(1);
        }
    };
    for round in 0..rounds {
        // Each time another part of the text, and a part that is no whole file.
        let until = text.len() - text.len() / 8 * (round % 8);
        let until = (0..=until).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        match syn::parse_file(&text[..until]) {
            Ok(file) => {
                let tokens = file.to_token_stream().to_string();
                println!("{} items, {} bytes", file.items.len(), tokens.len());
            }
            Err(error) => println!("{error}"),
        }
    }
}
