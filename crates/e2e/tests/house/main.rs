//! House rules that no compiler knows: of documents, words, files and numbers.

mod documents;
mod glossary;
mod tidy;
mod tuning;
