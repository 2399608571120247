//! Words as small numbers: labels, names and values are compared and stored as these.

use std::collections::HashMap;
use std::sync::Arc;

/// A word known to one [`Symbols`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

/// All words of a cluster. Grows by the words of the objects read, which the loader bounds.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    /// Those that copies of the cluster share.
    shared: Arc<Words>,
    /// Those that are new since.
    new: Words,
}

#[derive(Debug, Clone, Default)]
struct Words {
    all: Vec<Arc<str>>,
    index: HashMap<Arc<str>, Symbol>,
}

impl Symbols {
    /// The number of a word, a new one where it was not known.
    pub fn intern(&mut self, word: &str) -> Symbol {
        if let Some(symbol) = self.find(word) {
            return symbol;
        }
        // Four thousand million different words do not fit into memory.
        let symbol = Symbol(u32::try_from(self.len()).unwrap_or(u32::MAX));
        let word: Arc<str> = word.into();
        self.new.all.push(Arc::clone(&word));
        self.new.index.insert(word, symbol);
        symbol
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shared.all.len() + self.new.all.len()
    }

    /// Lets copies made from here on share the new words, once they are many.
    pub(super) fn share(&mut self) {
        /// A copy copies fewer.
        const FEW: usize = 4096;
        if self.new.all.len() > FEW.min(self.shared.all.len()) {
            let new = std::mem::take(&mut self.new);
            let shared = Arc::make_mut(&mut self.shared);
            shared.all.extend(new.all);
            shared.index.extend(new.index);
        }
    }

    /// The number of a word, if it is known.
    pub fn find(&self, word: &str) -> Option<Symbol> {
        self.shared.index.get(word).or_else(|| self.new.index.get(word)).copied()
    }

    /// The word.
    pub fn word(&self, symbol: Symbol) -> &str {
        let (at, shared) = (symbol.0 as usize, &self.shared.all);
        shared.get(at).or_else(|| self.new.all.get(at.checked_sub(shared.len())?)).map_or("", |word| word)
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
