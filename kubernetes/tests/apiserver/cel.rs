//! As much of the Common Expression Language as the rules of the shipped definition are written in: fields, `has`, comparisons, the logical
//! operators, `string`, and `quantity` with `compareTo` (k8s.io/apiserver, `pkg/cel/library/quantity.go`, since 1.29).

use evenkeel_model::quantity::Quantity;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 13] = ["&&", "||", "!=", "==", "<=", ">=", "<", ">", "!", "(", ")", ".", ","];

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
}

use Expression::{Both, Call, Field, Not, Text, Word};

/// The operators that bind least first.
const LEVELS: [&[&str]; 3] = [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">"]];

struct Reader(Vec<Token>);

impl Reader {
    fn takes(&mut self, sign: &'static str) -> bool {
        let is_it = self.0.first() == Some(&Token::Sign(sign));
        if is_it {
            self.0.remove(0);
        }
        is_it
    }

    fn wants(&mut self, sign: &'static str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("{sign} is missing before {:?}", self.0)) }
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
        let mut of = if self.takes("(") {
            let inner = self.level(0)?;
            self.wants(")")?;
            inner
        } else {
            match self.word()? {
                Word(name) if self.takes("(") => Call(None, name, self.arguments()?),
                other => other,
            }
        };
        while self.takes(".") {
            let Word(name) = self.word()? else { return Err("a field has no name".into()) };
            of = match self.takes("(") {
                true => Call(Some(Box::new(of)), name, self.arguments()?),
                false => Field(Box::new(of), name),
            };
        }
        Ok(of)
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

    fn arguments(&mut self) -> Result<Vec<Expression>, String> {
        let mut all = vec![self.level(0)?];
        while self.takes(",") {
            all.push(self.level(0)?);
        }
        self.wants(")")?;
        Ok(all)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Known {
    Plain(Value),
    Quantity(i128),
}

use Known::Plain;

fn known(of: &Expression, this: &Value) -> Result<Known, String> {
    let both = |pair: &[Expression; 2]| Ok::<_, String>((known(&pair[0], this)?, known(&pair[1], this)?));
    Ok(match of {
        Text(text) => Plain(text.clone().into()),
        Word(word) if word == "self" => Plain(this.clone()),
        Word(word) => Plain(serde_json::from_str(word).map_err(|_| format!("{word} is not declared"))?),
        Not(inner) => Plain((!truth(inner, this)?).into()),
        Field(of, name) => match known(of, this)? {
            Plain(value) => Plain(value.get(name).cloned().ok_or_else(|| format!("no such key: {name}"))?),
            Known::Quantity(_) => return Err("a quantity has no fields".into()),
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
        Call(Some(of), name, arguments) => match (known(of, this)?, name.as_str(), arguments.as_slice()) {
            (Known::Quantity(left), "compareTo", [right]) => match known(right, this)? {
                Known::Quantity(right) => Plain((left.cmp(&right) as i64).into()),
                Plain(value) => return Err(format!("{value} is no quantity")),
            },
            _ => return Err(format!("{name} is not declared")),
        },
    })
}

fn truth(of: &Expression, this: &Value) -> Result<bool, String> {
    match known(of, this)? {
        Plain(Value::Bool(is)) => Ok(is),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

/// Whether a rule holds for a value.
pub(crate) fn holds(rule: &str, this: &Value) -> Result<bool, String> {
    let mut reader = Reader(tokens(rule)?);
    let expression = reader.level(0)?;
    if !reader.0.is_empty() {
        return Err(format!("it goes on: {:?}", reader.0));
    }
    truth(&expression, this)
}
