//! Weaves mutants into the text of a file: small changes that a test is to notice.
//!
//! A mutant is a branch beside the code that it changes. A number decides at run time which branch
//! is taken, so all mutants are compiled once, and a test runs again for each of them. The changes
//! are those of cargo-mutants: functions that return at once, and other operators. Left alone are
//! tests, constants, patterns and macros.

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, BinOp, Expr, ExprBinary, ReturnType, Stmt, Type, UnOp, parse_quote};

/// What the text of a woven file calls to ask for a number. Its crate has that module.
pub const ASKED: &str = "crate :: mutant :: on (";

/// A change, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// The line in the file, from 1 on.
    pub line: usize,
    /// The function around it; empty outside.
    pub within: String,
    /// What it is, such as `< as <=`.
    pub change: String,
}

/// The text of a file with all mutants, numbered from `first` on, and what they are. Those whose
/// number is in `without` are left out: they do not compile.
///
/// # Errors
///
/// If the text is no Rust.
pub fn weave(text: &str, first: usize, without: &dyn Fn(usize) -> bool) -> syn::Result<(String, Vec<Mutant>)> {
    let mut file = syn::parse_file(text)?;
    let mut weaver = Weaver { first, without, mutants: Vec::new(), within: Vec::new() };
    weaver.visit_file_mut(&mut file);
    Ok((file.into_token_stream().to_string(), weaver.mutants))
}

struct Weaver<'a> {
    first: usize,
    without: &'a dyn Fn(usize) -> bool,
    mutants: Vec<Mutant>,
    /// The functions around this place, the innermost last.
    within: Vec<String>,
}

impl Weaver<'_> {
    /// The number of a new mutant; `None` if it is left out.
    fn add(&mut self, at: Span, change: String) -> Option<usize> {
        let number = self.first + self.mutants.len();
        let within = self.within.last().cloned().unwrap_or_default();
        self.mutants.push(Mutant { line: at.start().line, within, change });
        (!(self.without)(number)).then_some(number)
    }

    /// A function: each value that it could return at once, and then its body.
    fn function(&mut self, attrs: &[Attribute], signature: &syn::Signature, block: &mut syn::Block) {
        // Nothing can be asked at compile time.
        if is_test(attrs) || signature.constness.is_some() {
            return;
        }
        self.within.push(signature.ident.to_string());
        let mut early: Vec<Stmt> = Vec::new();
        for value in values(&signature.output) {
            let shown = value.as_ref().map_or_else(|| "()".to_owned(), shown);
            // It does so anyway.
            let same = block.stmts.is_empty()
                || matches!(&block.stmts[..], [Stmt::Expr(only, None)] if value.as_ref() == Some(only));
            if same {
                continue;
            }
            let Some(number) = self.add(signature.ident.span(), format!("returns {shown}")) else { continue };
            early.push(parse_quote!(if crate::mutant::on(#number) { return #value; }));
        }
        visit_mut::visit_block_mut(self, block);
        block.stmts.splice(0..0, early);
        self.within.pop();
    }

    /// The operators that take the place of one, each in a branch of its own. The operands of the
    /// branch have no mutants, so the text does not double with each operator around another.
    fn operators(&mut self, original: &ExprBinary, expr: &mut Expr) {
        for op in others(&original.op) {
            let change = format!("{} as {}", shown(&original.op), shown(&op));
            let Some(number) = self.add(original.op.span(), change) else { continue };
            let mutated = ExprBinary { op, ..original.clone() };
            let usual = expr.clone();
            *expr = parse_quote!((if crate::mutant::on(#number) { #mutated } else { #usual }));
        }
    }
}

impl VisitMut for Weaver<'_> {
    fn visit_item_mod_mut(&mut self, item: &mut syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit_mut::visit_item_mod_mut(self, item);
        }
    }

    fn visit_item_fn_mut(&mut self, item: &mut syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut syn::TraitItemFn) {
        if let Some(block) = &mut item.default {
            self.function(&item.attrs, &item.sig, block);
        }
    }

    // Known at compile time.
    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_trait_item_const_mut(&mut self, _: &mut syn::TraitItemConst) {}
    fn visit_expr_repeat_mut(&mut self, _: &mut syn::ExprRepeat) {}
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}
    fn visit_generic_argument_mut(&mut self, _: &mut syn::GenericArgument) {}
    fn visit_item_enum_mut(&mut self, _: &mut syn::ItemEnum) {}

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let original = expr.clone();
        visit_mut::visit_expr_mut(self, expr);
        match original {
            // A chain with `let` in it is no expression of its own.
            Expr::Binary(binary) if !has_let(&binary.left) && !has_let(&binary.right) => self.operators(&binary, expr),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let Some(number) = self.add(unary.op.span(), "without !".to_owned()) else { return };
                let (inner, usual) = (&unary.expr, expr.clone());
                *expr = parse_quote!((if crate::mutant::on(#number) { #inner } else { #usual }));
            }
            _ => {}
        }
    }
}

/// True for what only tests have.
fn is_test(attrs: &[Attribute]) -> bool {
    attrs
        .iter()
        .any(|attr| attr.path().is_ident("test") || (attr.path().is_ident("cfg") && shown(&attr.meta).contains("test")))
}

/// True if a condition binds something, itself or in its chain.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// What a function could return at once; nothing where no value is at hand. `None` is none at all.
fn values(output: &ReturnType) -> Vec<Option<Expr>> {
    let ReturnType::Type(_, returned) = output else { return vec![None] };
    let Type::Path(path) = &**returned else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let values: Vec<Expr> = match last.ident.to_string().as_str() {
        "bool" => vec![parse_quote!(true), parse_quote!(false)],
        "u8" | "u16" | "u32" | "u64" | "usize" => vec![parse_quote!(0), parse_quote!(1)],
        "Duration" => vec![parse_quote!(std::time::Duration::ZERO)],
        "Option" => vec![parse_quote!(None)],
        "Vec" => vec![parse_quote!(vec![])],
        _ => Vec::new(),
    };
    values.into_iter().map(Some).collect()
}

/// The operators that take the place of one.
fn others(op: &BinOp) -> Vec<BinOp> {
    match op {
        BinOp::Eq(_) => vec![parse_quote!(!=)],
        BinOp::Ne(_) => vec![parse_quote!(==)],
        BinOp::Lt(_) => vec![parse_quote!(==), parse_quote!(>), parse_quote!(<=)],
        BinOp::Gt(_) => vec![parse_quote!(==), parse_quote!(<), parse_quote!(>=)],
        BinOp::Le(_) => vec![parse_quote!(>)],
        BinOp::Ge(_) => vec![parse_quote!(<)],
        BinOp::And(_) => vec![parse_quote!(||)],
        BinOp::Or(_) => vec![parse_quote!(&&)],
        BinOp::Add(_) => vec![parse_quote!(-), parse_quote!(*)],
        BinOp::Sub(_) => vec![parse_quote!(+), parse_quote!(/)],
        BinOp::Mul(_) => vec![parse_quote!(+), parse_quote!(/)],
        BinOp::Div(_) => vec![parse_quote!(%), parse_quote!(*)],
        BinOp::Rem(_) => vec![parse_quote!(/), parse_quote!(+)],
        BinOp::Shl(_) => vec![parse_quote!(>>)],
        BinOp::Shr(_) => vec![parse_quote!(<<)],
        BinOp::BitAnd(_) => vec![parse_quote!(|), parse_quote!(^)],
        BinOp::BitOr(_) => vec![parse_quote!(&), parse_quote!(^)],
        BinOp::AddAssign(_) => vec![parse_quote!(-=), parse_quote!(*=)],
        BinOp::SubAssign(_) => vec![parse_quote!(+=)],
        BinOp::BitOrAssign(_) => vec![parse_quote!(&=)],
        _ => Vec::new(),
    }
}

fn shown(part: &impl ToTokens) -> String {
    part.to_token_stream().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Vec<String> {
        let (woven, mutants) = weave(text, 1, &|_| false).unwrap();
        assert_eq!(woven.matches(ASKED).count(), mutants.len(), "{woven}");
        mutants.into_iter().map(|mutant| format!("{} {}: {}", mutant.line, mutant.within, mutant.change)).collect()
    }

    #[test]
    fn operators_and_results_change() {
        let text =
            "impl A {\n fn f(&self) -> bool {\n  self.a < 1 && !self.b\n }\n fn g(&mut self) { self.a += 2; }\n}";
        let found = [
            "2 f: returns true",
            "2 f: returns false",
            "3 f: < as ==",
            "3 f: < as >",
            "3 f: < as <=",
            "3 f: without !",
            "3 f: && as ||",
            "5 g: returns ()",
            "5 g: += as -=",
            "5 g: += as *=",
        ];
        assert_eq!(changes(text), found);
    }

    #[test]
    fn what_runs_at_no_time_is_left_alone() {
        let none: [&str; 6] = [
            "const A: u64 = 1 + 2;",
            "const fn f() -> bool { 1 < 2 }",
            "#[cfg(test)] mod tests { fn f() -> bool { 1 < 2 } }",
            "#[test] fn f() { g(1 + 2); }",
            "trait T { fn f() -> bool; }",
            "fn f() -> [u8; 1 + 1] { [0; 1 + 1] }",
        ];
        for text in none {
            assert_eq!(changes(text), [""; 0], "{text}");
        }
        assert_eq!(changes("fn f() -> u64 { 0 }"), ["1 f: returns 1"], "the other is what it does");
        assert_eq!(
            changes("fn f(a: Option<u64>) -> A { if let Some(b) = a && b == 1 { c() } else { d() } }"),
            ["1 f: == as !="]
        );
    }

    #[test]
    fn a_mutant_that_does_not_compile_keeps_its_number() {
        let (woven, mutants) = weave("fn f() -> bool { a() }", 7, &|number| number == 7).unwrap();
        assert_eq!(mutants.len(), 2);
        assert!(!woven.contains("on (7") && woven.contains("on (8"), "{woven}");
    }
}
