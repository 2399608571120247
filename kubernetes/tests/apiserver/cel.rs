//! As much of the Common Expression Language as the rules of the shipped definition, and the shipped admission policy, are written in: fields,
//! indices, `has`, comparisons, `in`, the logical operators and the conditional one, lists, maps, objects by type name, the macros `all`, `exists`,
//! `filter` and `map`, `string` and a few functions of texts, and `quantity` with `compareTo` and `isLessThan` (k8s.io/apiserver,
//! `pkg/cel/library/quantity.go`, since 1.29).

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;

use evenkeel_model::quantity::Quantity;
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 20] = [
    "&&", "||", "!=", "==", "<=", ">=", "<", ">", "!", "(", ")", ".", ",", "[", "]", "{", "}", "?", ":", "+",
];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let (mut rest, mut all) = (text.trim_start(), Vec::new());
    while let Some(first) = rest.chars().next() {
        let taken = if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            all.push(Token::Sign(sign));
            sign.len()
        } else if first == '\'' {
            let inner = rest[1..].split_once('\'').ok_or("a string does not end")?.0;
            all.push(Token::Text(inner.to_owned()));
            inner.len() + 2
        } else {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            if end == 0 {
                return Err(format!("{first:?} is not known"));
            }
            all.push(Token::Word(rest[..end].to_owned()));
            end
        };
        rest = rest[taken..].trim_start();
    }
    Ok(all)
}

#[derive(Debug)]
enum Expression {
    Both(&'static str, Box<[Self; 2]>),
    Not(Box<Self>),
    Field(Box<Self>, String),
    Call(Option<Box<Self>>, String, Vec<Self>),
    Word(String),
    Text(String),
    If(Box<[Self; 3]>),
    At(Box<[Self; 2]>),
    List(Vec<Self>),
    Pairs(Vec<(Self, Self)>),
}

use Expression::{At, Both, Call, Field, If, List, Not, Pairs, Text, Word};

/// The operators that bind least first.
const LEVELS: [&[&str]; 4] = [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+"]];

struct Reader(Vec<Token>);

impl Reader {
    fn takes(&mut self, sign: &'static str) -> bool {
        let is_it = match self.0.first() {
            Some(Token::Sign(found)) => *found == sign,
            Some(Token::Word(word)) => sign == "in" && word == "in",
            _ => false,
        };
        if is_it {
            self.0.remove(0);
        }
        is_it
    }

    fn wants(&mut self, sign: &'static str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("{sign} is missing before {:?}", self.0)) }
    }

    fn whole(&mut self) -> Result<Expression, String> {
        let condition = self.level(0)?;
        if !self.takes("?") {
            return Ok(condition);
        }
        let yes = self.whole()?;
        self.wants(":")?;
        Ok(If(Box::new([condition, yes, self.whole()?])))
    }

    fn level(&mut self, at: usize) -> Result<Expression, String> {
        let Some(signs) = LEVELS.get(at) else { return self.unary() };
        let mut left = self.level(at + 1)?;
        while let Some(sign) = signs.iter().find(|sign| self.takes(sign)) {
            left = Both(sign, Box::new([left, self.level(at + 1)?]));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, String> {
        if self.takes("!") {
            return Ok(Not(Box::new(self.unary()?)));
        }
        let mut of = self.primary()?;
        loop {
            if self.takes(".") {
                let Word(name) = self.word()? else { return Err("a field has no name".into()) };
                of = match self.takes("(") {
                    true => Call(Some(Box::new(of)), name, self.list(")")?),
                    false => Field(Box::new(of), name),
                };
            } else if self.takes("[") {
                of = At(Box::new([of, self.whole()?]));
                self.wants("]")?;
            } else if self.takes("{") {
                // An object of a type: what its name is does not matter here.
                of = Pairs(self.pairs()?);
            } else {
                return Ok(of);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, String> {
        if self.takes("(") {
            let inner = self.whole()?;
            self.wants(")")?;
            return Ok(inner);
        }
        if self.takes("[") {
            return Ok(List(self.list("]")?));
        }
        if self.takes("{") {
            return Ok(Pairs(self.pairs()?));
        }
        match self.word()? {
            Word(name) if self.takes("(") => Ok(Call(None, name, self.list(")")?)),
            other => Ok(other),
        }
    }

    /// Keys of an object are names, and those of a map expressions.
    fn pairs(&mut self) -> Result<Vec<(Expression, Expression)>, String> {
        let mut all = Vec::new();
        while !self.takes("}") {
            let key = match self.whole()? {
                Word(name) => Text(name),
                key => key,
            };
            self.wants(":")?;
            all.push((key, self.whole()?));
            if !self.takes(",") {
                self.wants("}")?;
                break;
            }
        }
        Ok(all)
    }

    fn word(&mut self) -> Result<Expression, String> {
        if self.0.is_empty() {
            return Err("it ends too early".into());
        }
        match self.0.remove(0) {
            Token::Word(word) => Ok(Word(word)),
            Token::Text(text) => Ok(Text(text)),
            other => Err(format!("{other:?} is in the wrong place")),
        }
    }

    fn list(&mut self, end: &'static str) -> Result<Vec<Expression>, String> {
        let mut all = Vec::new();
        while !self.takes(end) {
            all.push(self.whole()?);
            if !self.takes(",") {
                self.wants(end)?;
                break;
            }
        }
        Ok(all)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Known {
    Plain(Value),
    Quantity(i128),
}

use Known::Plain;

/// What names stand for.
pub(crate) type Scope = BTreeMap<String, Value>;

fn known(of: &Expression, this: &Scope) -> Result<Known, String> {
    let both = |pair: &[Expression; 2]| Ok::<_, String>((known(&pair[0], this)?, known(&pair[1], this)?));
    Ok(match of {
        Text(text) => Plain(text.clone().into()),
        Word(word) if this.contains_key(word) => Plain(this[word].clone()),
        Word(word) => Plain(serde_json::from_str(word).map_err(|_| format!("{word} is not declared"))?),
        Not(inner) => Plain((!truth(inner, this)?).into()),
        Field(of, name) => match known(of, this)? {
            Plain(value) => Plain(value.get(name).cloned().ok_or_else(|| format!("no such key: {name}"))?),
            Known::Quantity(_) => return Err("a quantity has no fields".into()),
        },
        If(all) => known(&all[if truth(&all[0], this)? { 1 } else { 2 }], this)?,
        At(pair) => {
            let (of, at) = (plain(&pair[0], this)?, plain(&pair[1], this)?);
            let found = match &at {
                Value::String(key) => of.get(key),
                at => at.as_u64().and_then(|at| of.get(usize::try_from(at).ok()?)),
            };
            Plain(found.cloned().ok_or_else(|| format!("no such key: {at}"))?)
        }
        List(all) => Plain(all.iter().map(|one| plain(one, this)).collect::<Result<_, _>>()?),
        Pairs(all) => {
            let mut map = Map::new();
            for (key, value) in all {
                let Value::String(key) = plain(key, this)? else { return Err("a key is no text".into()) };
                map.insert(key, plain(value, this)?);
            }
            Plain(map.into())
        }
        Both("in", pair) => {
            let (one, of) = (plain(&pair[0], this)?, plain(&pair[1], this)?);
            Plain(
                match (&of, &one) {
                    (Value::Array(all), one) => all.contains(one),
                    (Value::Object(map), Value::String(key)) => map.contains_key(key),
                    _ => return Err(format!("nothing can be in {of}")),
                }
                .into(),
            )
        }
        Both("+", pair) => match (plain(&pair[0], this)?, plain(&pair[1], this)?) {
            (Value::String(one), Value::String(other)) => Plain((one + &other).into()),
            (one, other) => return Err(format!("{one} and {other} are no texts")),
        },
        // What one side decides needs no other.
        Both("||", pair) => Plain((truth(&pair[0], this)? || truth(&pair[1], this)?).into()),
        Both("&&", pair) => Plain((truth(&pair[0], this)? && truth(&pair[1], this)?).into()),
        Both(sign @ ("==" | "!="), pair) => {
            let (left, right) = both(pair)?;
            Plain(((left == right) == (*sign == "==")).into())
        }
        Both(sign, pair) => {
            let number = |known: Known| match known {
                Plain(value) => value.as_i64().ok_or_else(|| format!("{value} is no number")),
                Known::Quantity(_) => Err("a quantity is no number".to_owned()),
            };
            let (left, right) = both(pair)?;
            let order = number(left)?.cmp(&number(right)?);
            Plain(
                match *sign {
                    "<=" => order.is_le(),
                    ">=" => order.is_ge(),
                    "<" => order.is_lt(),
                    _ => order.is_gt(),
                }
                .into(),
            )
        }
        Call(None, name, arguments) => match (name.as_str(), arguments.as_slice()) {
            ("has", [Field(of, name)]) => match known(of, this)? {
                Plain(value) => Plain(value.get(name).is_some().into()),
                Known::Quantity(_) => return Err("a quantity has no fields".into()),
            },
            ("string", [one]) => match known(one, this)? {
                Plain(Value::String(text)) => Plain(text.into()),
                Plain(value @ Value::Number(_)) => Plain(value.to_string().into()),
                other => return Err(format!("no text of {other:?}")),
            },
            ("quantity", [one]) => match known(one, this)? {
                Plain(Value::String(text)) => {
                    Known::Quantity(Quantity::parse(&text).map_err(|error| error.to_string())?.nano())
                }
                other => return Err(format!("no quantity of {other:?}")),
            },
            _ => return Err(format!("{name} is not declared")),
        },
        Call(Some(of), name, arguments) if MACROS.contains(&name.as_str()) => {
            each(of, name, arguments, this)?
        }
        Call(Some(of), name, arguments) => match (known(of, this)?, name.as_str(), arguments.as_slice()) {
            (Plain(Value::String(text)), "lowerAscii", []) => Plain(text.to_ascii_lowercase().into()),
            (Plain(Value::String(text)), function, [one]) => {
                let Value::String(other) = plain(one, this)? else { return Err("no text".into()) };
                Plain(match function {
                    "contains" => text.contains(&other).into(),
                    "endsWith" => text.ends_with(&other).into(),
                    "split" => text.split(&other).map(Value::from).collect(),
                    _ => return Err(format!("{function} is not declared")),
                })
            }
            (Known::Quantity(left), "isLessThan", [right]) => match known(right, this)? {
                Known::Quantity(right) => Plain((left < right).into()),
                Plain(value) => return Err(format!("{value} is no quantity")),
            },
            (Known::Quantity(left), "compareTo", [right]) => match known(right, this)? {
                Known::Quantity(right) => Plain((left.cmp(&right) as i64).into()),
                Plain(value) => return Err(format!("{value} is no quantity")),
            },
            _ => return Err(format!("{name} is not declared")),
        },
    })
}

const MACROS: [&str; 4] = ["all", "exists", "filter", "map"];

/// A macro: of a list its items, of a map its keys.
fn each(of: &Expression, name: &str, arguments: &[Expression], this: &Scope) -> Result<Known, String> {
    let [Word(word), body] = arguments else { return Err(format!("{name} has a name and an expression")) };
    let items = match plain(of, this)? {
        Value::Array(items) => items,
        Value::Object(map) => map.into_iter().map(|(key, _)| key.into()).collect(),
        other => return Err(format!("{other} has no items")),
    };
    let with = |item: &Value| {
        let mut scope = this.clone();
        scope.insert(word.clone(), item.clone());
        scope
    };
    Ok(Plain(match name {
        "map" => items.iter().map(|item| plain(body, &with(item))).collect::<Result<Value, _>>()?,
        _ => {
            let holds = items.iter().map(|item| truth(body, &with(item)));
            let holds = holds.collect::<Result<Vec<bool>, _>>()?;
            match name {
                "all" => holds.iter().all(|holds| *holds).into(),
                "exists" => holds.iter().any(|holds| *holds).into(),
                _ => items.into_iter().zip(holds).filter(|(_, holds)| *holds).map(|(item, _)| item).collect(),
            }
        }
    }))
}

fn plain(of: &Expression, this: &Scope) -> Result<Value, String> {
    match known(of, this)? {
        Plain(value) => Ok(value),
        Known::Quantity(_) => Err("a quantity is no value".to_owned()),
    }
}

fn truth(of: &Expression, this: &Scope) -> Result<bool, String> {
    match known(of, this)? {
        Plain(Value::Bool(is)) => Ok(is),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

fn expression(rule: &str) -> Result<Expression, String> {
    let mut reader = Reader(tokens(rule)?);
    let expression = reader.whole()?;
    if !reader.0.is_empty() {
        return Err(format!("it goes on: {:?}", reader.0));
    }
    Ok(expression)
}

/// Whether a rule holds for a value.
pub(crate) fn holds(rule: &str, this: &Value) -> Result<bool, String> {
    truth(&expression(rule)?, &Scope::from([("self".to_owned(), this.clone())]))
}

/// What an expression makes of what names stand for.
pub(crate) fn value(rule: &str, scope: &Scope) -> Result<Value, String> {
    plain(&expression(rule)?, scope)
}
