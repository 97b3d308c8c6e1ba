//! The part of Python's pickle format that `torch.save` uses for a dictionary of tensors.
//!
//! A pickle is a program for a stack machine. Nothing that it names is run: calls are limited to the four
//! that rebuild tensors. Values refer to each other by index and never own each other, so no input can
//! make reading or dropping them recursive, however deeply it nests. A byte of a program may cost a few
//! hundred bytes of memory, so the length of a program, of names and of shapes is bounded.

use std::collections::HashMap;
use std::rc::Rc;

use super::numbers::NumberType;

/// A tensor whose values are in a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor {
    pub number_type: NumberType,
    /// The name of its storage.
    pub storage: String,
    /// In elements, as are the strides.
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

/// A value of the machine. Containers are indices into the machine's own lists.
#[derive(Debug, Clone)]
enum Item {
    None,
    Int(i64),
    Text(Rc<str>),
    Tuple(usize),
    Dictionary(usize),
    List(usize),
    Global(Rc<str>),
    Storage(NumberType, Rc<str>),
    Tensor(Rc<StoredTensor>),
}

#[derive(Default)]
struct Machine {
    stack: Vec<Item>,
    marks: Vec<usize>,
    memo: HashMap<u32, Item>,
    tuples: Vec<Vec<Item>>,
    dictionaries: Vec<Vec<(Item, Item)>>,
    lists: Vec<Vec<Item>>,
}

const MALFORMED: &str = "its pickle is malformed";
const TRUNCATED: &str = "it is truncated";
/// The longest program, in bytes; that of ResNet-152 has 100 kB.
const MAX_PROGRAM: usize = 1 << 20;
/// The longest name, in bytes.
const MAX_NAME: usize = 256;
const MAX_DIMENSIONS: usize = 8;

/// Takes bytes from the front of the input.
pub fn take<'a>(code: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    if count > code.len() {
        return Err(TRUNCATED.into());
    }
    let (taken, rest) = code.split_at(count);
    *code = rest;
    Ok(taken)
}

fn take_array<const N: usize>(code: &mut &[u8]) -> Result<[u8; N], String> {
    take(code, N)?.try_into().map_err(|_| TRUNCATED.into())
}

fn take_u8(code: &mut &[u8]) -> Result<u8, String> {
    take_array::<1>(code).map(|[byte]| byte)
}

fn take_u32(code: &mut &[u8]) -> Result<u32, String> {
    take_array(code).map(u32::from_le_bytes)
}

pub fn take_u64(code: &mut &[u8]) -> Result<u64, String> {
    take_array(code).map(u64::from_le_bytes)
}

fn take_line(code: &mut &[u8]) -> Result<String, String> {
    let end = code.iter().take(MAX_NAME).position(|byte| *byte == b'\n').ok_or(MALFORMED)?;
    let text = String::from_utf8_lossy(take(code, end)?).into_owned();
    take(code, 1)?;
    Ok(text)
}

impl Machine {
    fn pop(&mut self) -> Result<Item, String> {
        self.stack.pop().ok_or_else(|| MALFORMED.into())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Item>, String> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len()).ok_or(MALFORMED)?;
        Ok(self.stack.split_off(mark))
    }

    /// Runs the program to its end; returns the value on top of the stack.
    fn run(&mut self, code: &mut &[u8]) -> Result<Item, String> {
        let n_bytes = code.len();
        loop {
            if n_bytes - code.len() > MAX_PROGRAM {
                return Err(format!("its pickle is longer than {MAX_PROGRAM} bytes"));
            }
            let operation = take_u8(code)?;
            if operation == b'.' {
                return self.pop();
            }
            self.step(operation, code)?;
        }
    }

    fn step(&mut self, operation: u8, code: &mut &[u8]) -> Result<(), String> {
        match operation {
            // The protocol version and the length of a frame.
            0x80 => drop(take(code, 1)?),
            0x95 => drop(take(code, 8)?),
            b'(' => self.marks.push(self.stack.len()),
            b')' => self.push_tuple(Vec::new()),
            b'}' => self.push_dictionary(),
            b']' => {
                self.lists.push(Vec::new());
                self.stack.push(Item::List(self.lists.len() - 1));
            }
            b'N' => self.stack.push(Item::None),
            0x88 => self.stack.push(Item::Int(1)),
            0x89 => self.stack.push(Item::Int(0)),
            b'K' => {
                let value = i64::from(take_u8(code)?);
                self.stack.push(Item::Int(value));
            }
            b'M' => {
                let value = i64::from(u16::from_le_bytes(take_array(code)?));
                self.stack.push(Item::Int(value));
            }
            b'J' => {
                let value = i64::from(take_u32(code)?.cast_signed());
                self.stack.push(Item::Int(value));
            }
            0x8a => self.push_long(code)?,
            // Floating-point numbers are not part of a tensor.
            b'G' => {
                take(code, 8)?;
                self.stack.push(Item::None);
            }
            b'X' => {
                let length = take_u32(code)? as usize;
                self.push_text(code, length)?;
            }
            b'U' | 0x8c => {
                let length = usize::from(take_u8(code)?);
                self.push_text(code, length)?;
            }
            b'c' => {
                let (module, name) = (take_line(code)?, take_line(code)?);
                self.stack.push(Item::Global(format!("{module} {name}").into()));
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Item::Text(name), Item::Text(module)) = (name, module) else {
                    return Err(MALFORMED.into());
                };
                self.stack.push(Item::Global(format!("{module} {name}").into()));
            }
            b'q' => {
                let key = u32::from(take_u8(code)?);
                self.memoize(key)?;
            }
            b'r' => {
                let key = take_u32(code)?;
                self.memoize(key)?;
            }
            0x94 => self.memoize(self.memo.len() as u32)?,
            b'h' => {
                let key = u32::from(take_u8(code)?);
                self.recall(key)?;
            }
            b'j' => {
                let key = take_u32(code)?;
                self.recall(key)?;
            }
            b't' => {
                let items = self.pop_to_mark()?;
                self.push_tuple(items);
            }
            0x85..=0x87 => {
                let length = usize::from(operation - 0x84);
                let first = self.stack.len().checked_sub(length).ok_or(MALFORMED)?;
                let items = self.stack.split_off(first);
                self.push_tuple(items);
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(&id)?;
                self.stack.push(storage);
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                let result = self.call(&function, &arguments)?;
                self.stack.push(result);
            }
            // The state of an object; torch stores version numbers of dictionaries in it.
            b'b' | b'0' => drop(self.pop()?),
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set(items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.append(items)?;
            }
            other => {
                return Err(format!("its pickle uses operation {other:#04x}, which weights do not need"));
            }
        }
        Ok(())
    }

    fn push_tuple(&mut self, items: Vec<Item>) {
        self.tuples.push(items);
        self.stack.push(Item::Tuple(self.tuples.len() - 1));
    }

    fn push_dictionary(&mut self) {
        self.dictionaries.push(Vec::new());
        self.stack.push(Item::Dictionary(self.dictionaries.len() - 1));
    }

    /// A text that may be a name; a longer one is not.
    fn push_text(&mut self, code: &mut &[u8], length: usize) -> Result<(), String> {
        let text = String::from_utf8_lossy(take(code, length)?);
        self.stack.push(if length <= MAX_NAME { Item::Text(text.into()) } else { Item::None });
        Ok(())
    }

    /// An integer of up to eight bytes in two's complement; a longer one is not a size.
    fn push_long(&mut self, code: &mut &[u8]) -> Result<(), String> {
        let length = usize::from(take_u8(code)?);
        let bytes = take(code, length)?;
        let is_negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let mut value = [if is_negative { 0xff } else { 0 }; 8];
        let item = if length <= value.len() {
            value[..length].copy_from_slice(bytes);
            Item::Int(i64::from_le_bytes(value))
        } else {
            Item::None
        };
        self.stack.push(item);
        Ok(())
    }

    fn append(&mut self, items: Vec<Item>) -> Result<(), String> {
        let Some(Item::List(at)) = self.stack.last() else { return Err(MALFORMED.into()) };
        self.lists[*at].extend(items);
        Ok(())
    }

    fn memoize(&mut self, key: u32) -> Result<(), String> {
        let item = self.stack.last().ok_or(MALFORMED)?.clone();
        self.memo.insert(key, item);
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Result<(), String> {
        let item = self.memo.get(&key).ok_or(MALFORMED)?.clone();
        self.stack.push(item);
        Ok(())
    }

    fn set(&mut self, items: Vec<Item>) -> Result<(), String> {
        let Some(Item::Dictionary(at)) = self.stack.last() else { return Err(MALFORMED.into()) };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            self.dictionaries[*at].push((key, value));
        }
        Ok(())
    }

    fn tuple(&self, item: &Item) -> Option<&[Item]> {
        if let Item::Tuple(at) = item { self.tuples.get(*at).map(Vec::as_slice) } else { None }
    }

    /// The only calls that are supported: a tensor from its storage, and an ordered dictionary.
    fn call(&mut self, function: &Item, arguments: &Item) -> Result<Item, String> {
        let (Item::Global(name), Some(arguments)) = (function, self.tuple(arguments)) else {
            return Err(MALFORMED.into());
        };
        match name.as_ref() {
            "collections OrderedDict" => {
                self.dictionaries.push(Vec::new());
                Ok(Item::Dictionary(self.dictionaries.len() - 1))
            }
            "torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor" => self.tensor(arguments),
            "torch._utils _rebuild_parameter" => arguments.first().cloned().ok_or_else(|| MALFORMED.into()),
            other => Err(format!("its pickle calls {}, which weights do not need", other.replace(' ', "."))),
        }
    }

    fn storage(&self, id: &Item) -> Result<Item, String> {
        if let Some([Item::Text(_), Item::Global(class), Item::Text(key), ..]) = self.tuple(id) {
            let class = class.rsplit(' ').next().unwrap_or_default();
            return Ok(Item::Storage(NumberType::of_storage(class), Rc::clone(key)));
        }
        Err("one of its tensors has no storage".into())
    }

    fn tensor(&self, arguments: &[Item]) -> Result<Item, String> {
        if let [Item::Storage(number_type, key), Item::Int(offset), shape, strides, ..] = arguments
            && let (Some(shape), Some(strides)) = (self.sizes(shape), self.sizes(strides))
            && let Ok(offset) = usize::try_from(*offset)
            && shape.len() == strides.len()
        {
            let storage = key.to_string();
            let tensor = StoredTensor { number_type: *number_type, storage, offset, shape, strides };
            return Ok(Item::Tensor(Rc::new(tensor)));
        }
        Err("one of its tensors is malformed".into())
    }

    fn sizes(&self, item: &Item) -> Option<Vec<usize>> {
        let size =
            |item: &Item| if let Item::Int(value) = item { usize::try_from(*value).ok() } else { None };
        self.tuple(item).filter(|sizes| sizes.len() <= MAX_DIMENSIONS)?.iter().map(size).collect()
    }
}

/// Runs a pickle, which has to make a dictionary; returns its tensors by name. Dictionaries inside it, such
/// as `state_dict`, are searched too.
pub fn tensors(code: &mut &[u8]) -> Result<Vec<(String, StoredTensor)>, String> {
    let mut machine = Machine::default();
    let Item::Dictionary(root) = machine.run(code)? else {
        return Err("it is not a dictionary of tensors".into());
    };
    let mut found = Vec::new();
    let mut is_searched = vec![false; machine.dictionaries.len()];
    let mut waiting = vec![root];
    while let Some(at) = waiting.pop() {
        if std::mem::replace(&mut is_searched[at], true) {
            continue;
        }
        for (key, value) in &machine.dictionaries[at] {
            match (key, value) {
                (Item::Text(name), Item::Tensor(tensor)) => {
                    found.push((name.to_string(), tensor.as_ref().clone()));
                }
                (_, Item::Dictionary(inner)) => waiting.push(*inner),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Runs a pickle whose value is not needed.
pub fn skip(code: &mut &[u8]) -> Result<(), String> {
    Machine::default().run(code).map(drop)
}

/// Runs a pickle, which has to make a list; returns the texts in it.
pub fn texts(code: &mut &[u8]) -> Result<Vec<String>, String> {
    let mut machine = Machine::default();
    let Item::List(at) = machine.run(code)? else { return Err("it does not name its storages".into()) };
    let text = |item: &Item| if let Item::Text(text) = item { Some(text.to_string()) } else { None };
    Ok(machine.lists[at].iter().filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_that_are_nested_a_million_times_are_dropped_without_recursion() {
        for nest in [&[0x85][..], b"(t", b"]a", b"q\x00h\x00\x86"] {
            let mut code = vec![b'N'];
            for _ in 0..MAX_PROGRAM / nest.len() - 2 {
                code.extend_from_slice(nest);
            }
            code.push(b'.');
            let _ = skip(&mut code.as_slice());
        }
        let nested: Vec<u8> = [b"N".as_slice(), &[0x85; 1_000_000], b"."].concat();
        assert_eq!(tensors(&mut nested.as_slice()), Err("it is not a dictionary of tensors".into()));
        let longer: Vec<u8> = [b"N".as_slice(), &[0x85; 2_000_000], b"."].concat();
        assert_eq!(tensors(&mut longer.as_slice()), Err("its pickle is longer than 1048576 bytes".into()));
    }

    /// One shape of many dimensions, or one long name, could be copied by every few bytes of a program.
    #[test]
    fn what_can_be_repeated_is_small() {
        let storage =
            b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ";
        let with_dimensions = |count: usize| {
            let sizes = [b"(".as_slice(), &b"K\x01".repeat(count), b"t"].concat();
            let call =
                [b"}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n(", storage.as_slice(), b"K\x00"];
            let code = [call.concat(), sizes.clone(), sizes, b"\x89)tRs.".to_vec()].concat();
            tensors(&mut code.as_slice()).map(|found| found.len())
        };
        assert_eq!(with_dimensions(MAX_DIMENSIONS), Ok(1));
        assert_eq!(with_dimensions(MAX_DIMENSIONS + 1), Err("one of its tensors is malformed".into()));
        let text = |length: usize| {
            let code = [b"X".as_slice(), &(length as u32).to_le_bytes(), &vec![b'a'; length], b"."].concat();
            Machine::default().run(&mut code.as_slice()).unwrap()
        };
        assert!(matches!(text(MAX_NAME), Item::Text(_)) && matches!(text(MAX_NAME + 1), Item::None));
    }

    #[test]
    fn dictionaries_that_contain_each_other_are_searched_once() {
        // d = {}; d["a"] = d
        let code = b"}q\x00X\x01\x00\x00\x00ah\x00s.";
        assert_eq!(tensors(&mut code.as_slice()), Ok(Vec::new()));
    }

    #[test]
    fn calls_that_weights_do_not_need_are_rejected() {
        let code = b"cos\nsystem\n(X\x02\x00\x00\x00lstR.";
        let error = tensors(&mut code.as_slice()).unwrap_err();
        assert_eq!(error, "its pickle calls os.system, which weights do not need");
    }

    #[test]
    fn integers_are_in_twos_complement() {
        let int = |code: &[u8]| Machine::default().run(&mut { code }).unwrap();
        assert!(matches!(int(b"\x8a\x01\xff."), Item::Int(-1)));
        assert!(matches!(int(b"\x8a\x02\x00\x01."), Item::Int(256)));
        assert!(matches!(int(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."), Item::None));
        assert!(matches!(int(b"J\xfe\xff\xff\xff."), Item::Int(-2)));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_result(code in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = tensors(&mut code.as_slice());
        }

        /// Bytes that are operations reach further than random ones.
        #[test]
        fn any_program_ends_in_a_result(
            code in prop::collection::vec(prop::sample::select(b"(.)}]Nt\x85\x86\x87QRbsuae0q\x00h\x00K\x01\x88\x94".to_vec()), 0..300)
        ) {
            let _ = tensors(&mut code.as_slice());
        }
    }
}
