//! Words as small numbers: labels, names and values are compared and stored as these.

use std::collections::HashMap;
use std::sync::Arc;

/// A word known to one [`Symbols`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

/// All words of a cluster. Grows by the words of the objects read, which the loader bounds.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    words: Vec<Arc<str>>,
    index: HashMap<Arc<str>, Symbol>,
}

impl Symbols {
    /// The number of a word, a new one where it was not known.
    pub fn intern(&mut self, word: &str) -> Symbol {
        if let Some(symbol) = self.index.get(word) {
            return *symbol;
        }
        // Four thousand million different words do not fit into memory.
        let symbol = Symbol(u32::try_from(self.words.len()).unwrap_or(u32::MAX));
        let word: Arc<str> = word.into();
        self.words.push(Arc::clone(&word));
        self.index.insert(word, symbol);
        symbol
    }

    /// The number of a word, if it is known.
    pub fn find(&self, word: &str) -> Option<Symbol> {
        self.index.get(word).copied()
    }

    /// The word.
    pub fn word(&self, symbol: Symbol) -> &str {
        self.words.get(symbol.0 as usize).map_or("", |word| word)
    }
}

/// Labels, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Symbol, Symbol)]>);

impl Labels {
    /// Interns labels as written.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>, symbols: &mut Symbols) -> Self {
        let mut pairs: Vec<_> =
            pairs.into_iter().map(|(key, value)| (symbols.intern(key), symbols.intern(value))).collect();
        pairs.sort_unstable();
        Self(pairs.into())
    }

    /// The value of a label.
    pub fn get(&self, key: Symbol) -> Option<Symbol> {
        self.0.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| self.0[at].1)
    }

    /// All pairs.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, Symbol)> {
        self.0.iter().copied()
    }
}
