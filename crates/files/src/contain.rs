//! Libraries that panic on input that nobody writes by accident.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Calls a library and gives none if it panics, without a word on stderr. What the call works on must not be
/// used afterwards.
pub fn contain_panic<T>(call: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_CONTAINED.get() {
                hook(info);
            }
        }));
    });
    let before = IS_CONTAINED.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(call));
    IS_CONTAINED.set(before);
    outcome.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_contained_and_others_are_reported_again() {
        assert_eq!(contain_panic(|| 7), Some(7));
        assert_eq!(contain_panic(|| -> i32 { panic!("hostile") }), None);
        assert_eq!(contain_panic(|| contain_panic(|| -> i32 { panic!("inner") })), Some(None));
        assert!(!IS_CONTAINED.get());
    }
}
