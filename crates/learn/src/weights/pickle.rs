//! The part of Python's pickles that `torch.save` uses for a dictionary of tensors.

use std::collections::HashMap;
use std::rc::Rc;

use crate::artifact::{Tensor, Tensors};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Float,
    Double,
    Half,
    BrainHalf,
    /// Counts and the like, which are no weights.
    Other,
}

impl Number {
    fn of_storage(name: &str) -> Self {
        match name {
            "FloatStorage" => Self::Float,
            "DoubleStorage" => Self::Double,
            "HalfStorage" => Self::Half,
            "BFloat16Storage" => Self::BrainHalf,
            _ => Self::Other,
        }
    }

    fn n_bytes(self) -> usize {
        match self {
            Self::Double => 8,
            Self::Float => 4,
            Self::Half | Self::BrainHalf => 2,
            Self::Other => 1,
        }
    }
}

pub fn numbers(bytes: &[u8], number: Number) -> Vec<f32> {
    let pair = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    match number {
        Number::Float => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        }
        Number::Double => bytes
            .chunks_exact(8)
            .map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32)
            .collect(),
        Number::Half => bytes.chunks_exact(2).map(|b| half(pair(b))).collect(),
        Number::BrainHalf => {
            bytes.chunks_exact(2).map(|b| f32::from_bits(u32::from(pair(b)) << 16)).collect()
        }
        Number::Other => Vec::new(),
    }
}

fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, bits & 1023);
    let size = match exponent {
        0 => f32::from(fraction) * 2f32.powi(-24),
        31 if fraction == 0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + f32::from(fraction) / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -size } else { size }
}

/// A tensor whose numbers lie elsewhere.
#[derive(Debug, Clone)]
pub struct Pending {
    number: Number,
    key: String,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

#[derive(Debug, Clone)]
enum Item {
    Nothing,
    Whole(i64),
    Text(Rc<str>),
    Tuple(Rc<Vec<Item>>),
    /// Index into the lists or dictionaries that were begun.
    Dictionary(usize),
    List(usize),
    Global(Rc<str>),
    Storage(Number, Rc<str>),
    Tensor(Rc<Pending>),
}

#[derive(Default)]
struct Machine {
    stack: Vec<Item>,
    marks: Vec<usize>,
    memo: HashMap<u32, Item>,
    dictionaries: Vec<Vec<(Item, Item)>>,
    lists: Vec<Vec<Item>>,
}

/// What is most of anything that a count in a file may ask for.
const MOST: usize = 1 << 31;

fn take<'a>(code: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    if count > code.len() {
        return Err("it is cut off".into());
    }
    let (taken, rest) = code.split_at(count);
    *code = rest;
    Ok(taken)
}

fn byte(code: &mut &[u8]) -> Result<u8, String> {
    take(code, 1).map(|bytes| bytes[0])
}

fn long(code: &mut &[u8]) -> Result<u32, String> {
    take(code, 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn line(code: &mut &[u8]) -> Result<String, String> {
    let end = code.iter().position(|byte| *byte == b'\n').ok_or("it is cut off")?;
    let text = String::from_utf8_lossy(take(code, end)?).into_owned();
    take(code, 1)?;
    Ok(text)
}

impl Machine {
    fn pop(&mut self) -> Result<Item, String> {
        self.stack.pop().ok_or_else(|| "its pickle makes no sense".into())
    }

    fn since_mark(&mut self) -> Result<Vec<Item>, String> {
        let mark =
            self.marks.pop().filter(|mark| *mark <= self.stack.len()).ok_or("its pickle makes no sense")?;
        Ok(self.stack.split_off(mark))
    }

    fn run(&mut self, code: &mut &[u8]) -> Result<Item, String> {
        loop {
            match byte(code)? {
                0x80 => drop(byte(code)?),
                0x95 => drop(take(code, 8)?),
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b')' => self.stack.push(Item::Tuple(Rc::default())),
                b'}' => self.dictionary(),
                b']' => self.list(),
                b'N' => self.stack.push(Item::Nothing),
                0x88 => self.stack.push(Item::Whole(1)),
                0x89 => self.stack.push(Item::Whole(0)),
                b'K' => {
                    let value = byte(code)?;
                    self.stack.push(Item::Whole(i64::from(value)));
                }
                b'M' => {
                    let bytes = take(code, 2)?;
                    self.stack.push(Item::Whole(i64::from(u16::from_le_bytes([bytes[0], bytes[1]]))));
                }
                b'J' => {
                    let value = long(code)? as i32;
                    self.stack.push(Item::Whole(i64::from(value)));
                }
                0x8a => {
                    let count = usize::from(byte(code)?);
                    let bytes = take(code, count)?;
                    let mut value = [0u8; 8];
                    bytes.iter().take(8).enumerate().for_each(|(at, byte)| value[at] = *byte);
                    self.stack.push(Item::Whole(i64::from_le_bytes(value)));
                }
                b'G' => {
                    take(code, 8)?;
                    self.stack.push(Item::Nothing);
                }
                b'X' => {
                    let count = long(code)? as usize;
                    self.text(code, count)?;
                }
                0x8c => {
                    let count = usize::from(byte(code)?);
                    self.text(code, count)?;
                }
                b'U' => {
                    let count = usize::from(byte(code)?);
                    self.text(code, count)?;
                }
                b'c' => {
                    let (module, name) = (line(code)?, line(code)?);
                    self.stack.push(Item::Global(format!("{module} {name}").into()));
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let (Item::Text(name), Item::Text(module)) = (name, module) else {
                        return Err("its pickle makes no sense".into());
                    };
                    self.stack.push(Item::Global(format!("{module} {name}").into()));
                }
                b'q' => {
                    let at = u32::from(byte(code)?);
                    self.remember(at)?;
                }
                b'r' => {
                    let at = long(code)?;
                    self.remember(at)?;
                }
                0x94 => {
                    let at = self.memo.len() as u32;
                    self.remember(at)?;
                }
                b'h' => {
                    let at = u32::from(byte(code)?);
                    self.recall(at)?;
                }
                b'j' => {
                    let at = long(code)?;
                    self.recall(at)?;
                }
                b't' => {
                    let items = self.since_mark()?;
                    self.stack.push(Item::Tuple(Rc::new(items)));
                }
                0x85 => self.tuple(1)?,
                0x86 => self.tuple(2)?,
                0x87 => self.tuple(3)?,
                b'Q' => {
                    let id = self.pop()?;
                    self.stack.push(storage(&id)?);
                }
                b'R' => {
                    let (arguments, callee) = (self.pop()?, self.pop()?);
                    let made = self.call(&callee, &arguments)?;
                    self.stack.push(made);
                }
                // The state of an object; of dictionaries it is what torch notes of their versions.
                b'b' => drop(self.pop()?),
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set(vec![key, value])?;
                }
                b'u' => {
                    let items = self.since_mark()?;
                    self.set(items)?;
                }
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.since_mark()?;
                    self.append(items)?;
                }
                b'0' => drop(self.pop()?),
                other => {
                    return Err(format!("its pickle uses what weights do not need (operation {other:#04x})"));
                }
            }
        }
    }

    fn append(&mut self, items: Vec<Item>) -> Result<(), String> {
        let Some(Item::List(at)) = self.stack.last() else { return Err("its pickle makes no sense".into()) };
        self.lists[*at].extend(items);
        Ok(())
    }

    fn dictionary(&mut self) {
        self.dictionaries.push(Vec::new());
        self.stack.push(Item::Dictionary(self.dictionaries.len() - 1));
    }

    fn list(&mut self) {
        self.lists.push(Vec::new());
        self.stack.push(Item::List(self.lists.len() - 1));
    }

    fn text(&mut self, code: &mut &[u8], count: usize) -> Result<(), String> {
        let text = String::from_utf8_lossy(take(code, count)?).into_owned();
        self.stack.push(Item::Text(text.into()));
        Ok(())
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let from = self.stack.len().checked_sub(count).ok_or("its pickle makes no sense")?;
        let items = self.stack.split_off(from);
        self.stack.push(Item::Tuple(Rc::new(items)));
        Ok(())
    }

    fn remember(&mut self, at: u32) -> Result<(), String> {
        let item = self.stack.last().ok_or("its pickle makes no sense")?.clone();
        self.memo.insert(at, item);
        Ok(())
    }

    fn recall(&mut self, at: u32) -> Result<(), String> {
        let item = self.memo.get(&at).ok_or("its pickle makes no sense")?.clone();
        self.stack.push(item);
        Ok(())
    }

    fn set(&mut self, items: Vec<Item>) -> Result<(), String> {
        let Some(Item::Dictionary(at)) = self.stack.last().cloned() else {
            return Err("its pickle makes no sense".into());
        };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            self.dictionaries[at].push((key, value));
        }
        Ok(())
    }

    /// The only calls that mean anything here: a tensor from its storage, and an ordered dictionary.
    fn call(&mut self, callee: &Item, arguments: &Item) -> Result<Item, String> {
        let (Item::Global(name), Item::Tuple(arguments)) = (callee, arguments) else {
            return Err("its pickle makes no sense".into());
        };
        match name.as_ref() {
            "collections OrderedDict" => {
                self.dictionaries.push(Vec::new());
                Ok(Item::Dictionary(self.dictionaries.len() - 1))
            }
            "torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor" => tensor(arguments),
            "torch._utils _rebuild_parameter" => {
                arguments.first().cloned().ok_or_else(|| "its pickle makes no sense".into())
            }
            other => Err(format!(
                "its pickle wants to call {}, which weights do not need",
                other.replace(' ', ".")
            )),
        }
    }
}

fn storage(id: &Item) -> Result<Item, String> {
    if let Item::Tuple(parts) = id
        && let [Item::Text(_), Item::Global(class), Item::Text(key), ..] = parts.as_slice()
    {
        let class = class.rsplit(' ').next().unwrap_or_default();
        return Ok(Item::Storage(Number::of_storage(class), Rc::clone(key)));
    }
    Err("a tensor of it has no storage".into())
}

fn tensor(arguments: &[Item]) -> Result<Item, String> {
    let sizes = |item: &Item| -> Option<Vec<usize>> {
        let Item::Tuple(items) = item else { return None };
        let whole = |item: &Item| {
            if let Item::Whole(value) = item {
                usize::try_from(*value).ok().filter(|size| *size < MOST)
            } else {
                None
            }
        };
        items.iter().map(whole).collect()
    };
    if let [Item::Storage(number, key), Item::Whole(offset), shape, strides, ..] = arguments
        && let (Some(shape), Some(strides), Ok(offset)) =
            (sizes(shape), sizes(strides), usize::try_from(*offset))
        && shape.len() == strides.len()
    {
        let pending = Pending { number: *number, key: key.to_string(), offset, shape, strides };
        return Ok(Item::Tensor(Rc::new(pending)));
    }
    Err("a tensor of it makes no sense".into())
}

/// Runs a pickle, and takes the tensors out of the dictionary that it makes; of one in a dictionary, such as
/// `state_dict`, too.
pub fn tensors(code: &mut &[u8]) -> Result<Vec<(String, Pending)>, String> {
    let mut machine = Machine::default();
    let root = machine.run(code)?;
    let Item::Dictionary(root) = root else { return Err("it is no dictionary of tensors".into()) };
    let mut found = Vec::new();
    let mut waiting = vec![root];
    while let Some(at) = waiting.pop() {
        for (key, value) in machine.dictionaries.get(at).cloned().unwrap_or_default() {
            match (key, value) {
                (Item::Text(name), Item::Tensor(pending)) => {
                    found.push((name.to_string(), (*pending).clone()))
                }
                (_, Item::Dictionary(inner)) if inner > at => waiting.push(inner),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Numbers for tensors, from their storages.
pub fn fill(
    pending: Vec<(String, Pending)>,
    mut storage: impl FnMut(&str) -> Result<Vec<u8>, String>,
) -> Result<Tensors, String> {
    let mut found = Tensors::new();
    for (name, one) in pending.into_iter().filter(|(_, one)| one.number != Number::Other) {
        let bytes = storage(&one.key)?;
        let all = numbers(&bytes, one.number);
        let count: usize = one.shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size)).unwrap_or(MOST);
        let last: usize =
            one.shape.iter().zip(&one.strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
        if count > 0 && (count >= MOST || one.offset + last >= all.len()) {
            return Err(format!("{name} is larger than what is stored of it"));
        }
        let mut values = Vec::with_capacity(count);
        let mut at = vec![0usize; one.shape.len()];
        for _ in 0..count {
            values.push(
                all[one.offset + at.iter().zip(&one.strides).map(|(at, stride)| at * stride).sum::<usize>()],
            );
            for axis in (0..at.len()).rev() {
                at[axis] += 1;
                if at[axis] < one.shape[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
        found.insert(name, Tensor::new(one.shape, values));
    }
    Ok(found)
}

/// The format of `torch.save` before 1.6: five pickles in a row (a mark, a version, the machine, the object, the keys
/// of storages), then every storage: its length, then its numbers.
pub fn legacy(bytes: &[u8]) -> Result<Tensors, String> {
    let mut code = bytes;
    for _ in 0..3 {
        Machine::default().run(&mut code)?;
    }
    let pending = tensors(&mut code)?;
    let mut machine = Machine::default();
    let Item::List(keys) = machine.run(&mut code)? else {
        return Err("it does not name its storages".into());
    };
    let text = |item: &Item| if let Item::Text(text) = item { Some(text.to_string()) } else { None };
    let keys: Vec<String> = machine.lists[keys].iter().filter_map(text).collect();
    let kinds: HashMap<&str, Number> =
        pending.iter().map(|(_, one)| (one.key.as_str(), one.number)).collect();
    let mut storages: HashMap<String, &[u8]> = HashMap::new();
    for key in &keys {
        let count = take(&mut code, 8)?;
        let count = u64::from_le_bytes([
            count[0], count[1], count[2], count[3], count[4], count[5], count[6], count[7],
        ]);
        let number = kinds.get(key.as_str()).copied().unwrap_or(Number::Other);
        // Of what is no weight only counts are stored: whole numbers of eight bytes.
        let size = if number == Number::Other { 8 } else { number.n_bytes() };
        let length =
            usize::try_from(count).ok().and_then(|count| count.checked_mul(size)).ok_or("it is cut off")?;
        storages.insert(key.clone(), take(&mut code, length)?);
    }
    fill(pending, |key| {
        storages.get(key).map(|bytes| bytes.to_vec()).ok_or_else(|| format!("storage {key} is missing"))
    })
}
