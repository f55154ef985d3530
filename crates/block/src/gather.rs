//! Sets and maps that are filled one by one.

/// [`Iterator::collect`] for sets and maps, with less code.
pub trait Gather: Iterator + Sized {
    /// The same as `collect`, one by one. For sets and maps, the standard library's sorts first.
    /// That is 4 KB of code for each type, and an initramfs has little room.
    fn gathered<C: Default + Extend<Self::Item>>(self) -> C {
        let mut all = C::default();
        all.extend(self);
        all
    }
}

impl<I: Iterator> Gather for I {}
