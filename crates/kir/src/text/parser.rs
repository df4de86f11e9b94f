//! Text to module: declarations and statements. Expressions are in `expression.rs`.

use super::lexer::{Kind, Token, tokens};
use super::{MAX_NESTING, ParseError, is_identifier, names};
use crate::arena::Handle;
use crate::module::*;
use crate::types::{Field, Pointee, Scalar, Space, Struct, Type};

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// The module of a text. Names are resolved and values typed; every other rule is the validator's.
pub fn parse(text: &str) -> Result<Module> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens,
        next: 0,
        module: Module::default(),
        scope: Current::default(),
        most_values: text.len(),
    };
    while parser.peek() != Kind::End {
        parser.item()?;
    }
    Ok(parser.module)
}

/// The function under construction.
#[derive(Default)]
pub(super) struct Current {
    pub(super) function: Function,
    /// Which values have been defined; the others in the arena are place holders.
    pub(super) defined: Vec<bool>,
    depth: usize,
}

pub(super) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    pub(super) module: Module,
    pub(super) scope: Current,
    /// No value's number can be higher than the text is long; bounds the arena.
    most_values: usize,
}

impl<'a> Parser<'a> {
    // ---- tokens

    fn token(&self) -> Token<'a> {
        let last = self.tokens.len() - 1;
        self.tokens[self.next.min(last)]
    }

    pub(super) fn peek(&self) -> Kind<'a> {
        self.token().kind
    }

    fn peek_second(&self) -> Kind<'a> {
        self.tokens.get(self.next + 1).map_or(Kind::End, |token| token.kind)
    }

    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    /// The number of the next token, for [`Parser::error_at`].
    pub(super) fn position(&self) -> usize {
        self.next
    }

    /// An error at a token that [`Parser::position`] gave.
    pub(super) fn error_at<T>(&mut self, position: usize, message: impl Into<String>) -> Result<T> {
        self.next = position;
        self.error(message)
    }

    /// An error at the next token.
    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        let Token { line, column, .. } = self.token();
        Err(ParseError { line, column, message: message.into() })
    }

    /// An error at the token before.
    pub(super) fn error_before<T>(&mut self, message: impl Into<String>) -> Result<T> {
        self.next = self.next.saturating_sub(1);
        self.error(message)
    }

    pub(super) fn expected<T>(&self, what: &str) -> Result<T> {
        self.error(format!("expected {what}, found {}", self.peek()))
    }

    pub(super) fn mark(&mut self, mark: char) -> Result<()> {
        if self.accept(mark) { Ok(()) } else { self.expected(&Kind::Mark(mark).to_string()) }
    }

    pub(super) fn accept(&mut self, mark: char) -> bool {
        let found = self.peek() == Kind::Mark(mark);
        if found {
            self.advance();
        }
        found
    }

    /// The next token's word, or an empty one, which is no name.
    pub(super) fn peek_word(&self) -> &'a str {
        match self.peek() {
            Kind::Word(word) => word,
            _ => "",
        }
    }

    /// Steps over the next token, for which `found` was looked up; `what` says in an error what should stand there.
    pub(super) fn take<T>(&mut self, what: &str, found: Option<T>) -> Result<T> {
        match found {
            Some(found) => {
                self.advance();
                Ok(found)
            }
            None => self.expected(what),
        }
    }

    /// A word that stands for something.
    pub(super) fn lookup<T>(&mut self, what: &str, find: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let found = find(self.peek_word());
        self.take(what, found)
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Kind::Word(word) => {
                self.advance();
                Ok(word)
            }
            _ => self.expected(what),
        }
    }

    fn name(&mut self, what: &str) -> Result<String> {
        self.lookup(what, |word| is_identifier(word).then(|| word.to_string()))
    }

    pub(super) fn number(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Kind::Number(text) => {
                self.advance();
                Ok(text)
            }
            _ => self.expected(what),
        }
    }

    /// The items of a list up to its closing mark, separated by commas.
    fn list<T>(&mut self, close: char, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.accept(close) {
            items.push(item(self)?);
            if !self.accept(',') && self.peek() != Kind::Mark(close) {
                return self.expected(&format!("`,` or `{close}`"));
            }
        }
        Ok(items)
    }

    // ---- types

    pub(super) fn ty(&mut self) -> Result<Type> {
        if self.peek() != Kind::Word("ptr") {
            let found =
                |word: &str| names::scalar_of(word).map(Type::Scalar).or_else(|| names::vector_of(word));
            return self.lookup("a type", found);
        }
        self.advance();
        self.mark('<')?;
        let space: Space = self.lookup("`global` or `shared`", names::space_of)?;
        self.mark(',')?;
        let pointee = self.pointee()?;
        self.mark('>')?;
        Ok(Type::Ptr(space, pointee))
    }

    fn pointee(&mut self) -> Result<Pointee> {
        let word = self.peek_word();
        let structure = self.module.structs.find(|structure| structure.name == word);
        let found = names::scalar_of(word).map(Pointee::Scalar).or(structure.map(Pointee::Struct));
        self.take("a scalar type or a struct that stands before", found)
    }

    pub(super) fn scalar(&mut self) -> Result<Scalar> {
        self.lookup("a scalar type", names::scalar_of)
    }

    // ---- items

    fn item(&mut self) -> Result<()> {
        match self.peek() {
            Kind::Word("struct") => self.structure(),
            Kind::Word("fn") => {
                let function = self.function(false)?;
                self.module.functions.push(function);
                Ok(())
            }
            Kind::Word("kernel") => {
                let kernel = self.function(true)?;
                self.module.kernels.push(kernel);
                Ok(())
            }
            _ => self.expected("`struct`, `fn` or `kernel`"),
        }
    }

    fn typed_name(&mut self, what: &str) -> Result<(String, Type)> {
        let name = self.name(what)?;
        self.mark(':')?;
        Ok((name, self.ty()?))
    }

    fn structure(&mut self) -> Result<()> {
        self.advance();
        let name = self.name("the struct's name")?;
        self.mark('{')?;
        let fields = self.list('}', |parser| {
            let (name, ty) = parser.typed_name("a field's name")?;
            Ok(Field { name, ty })
        })?;
        self.module.structs.push(Struct { name, fields });
        Ok(())
    }

    fn function(&mut self, kernel: bool) -> Result<Function> {
        self.advance();
        self.scope = Current::default();
        self.scope.function.name = self.name("a name")?;
        self.mark('(')?;
        self.scope.function.params = self.list(')', |parser| {
            let (name, ty) = parser.typed_name("a parameter's name")?;
            Ok(Param { name, ty })
        })?;
        if !kernel && self.accept('→') {
            self.scope.function.result = Some(self.ty()?);
        }
        self.mark('{')?;
        self.declarations()?;
        self.scope.function.body = self.block()?;
        if let Some(missing) = self.scope.defined.iter().position(|defined| !defined) {
            return self.error_before(format!("value %{missing} is never defined"));
        }
        Ok(std::mem::take(&mut self.scope.function))
    }

    /// Shared arrays and variables: `shared name: [type; count]` and `var name: type`.
    fn declarations(&mut self) -> Result<()> {
        loop {
            let declares = matches!(self.peek_second(), Kind::Word(_));
            match self.peek() {
                Kind::Word("shared") if declares => {
                    self.advance();
                    let name = self.name("the array's name")?;
                    self.mark(':')?;
                    self.mark('[')?;
                    let element = self.pointee()?;
                    self.mark(';')?;
                    let count = self.parsed("a number of elements", |text| text.parse().ok())?;
                    self.mark(']')?;
                    self.scope.function.shared.push(SharedArray { name, element, count });
                }
                Kind::Word("var") if declares => {
                    self.advance();
                    let (name, ty) = self.typed_name("the variable's name")?;
                    self.scope.function.vars.push(Variable { name, ty });
                }
                _ => return Ok(()),
            }
        }
    }

    /// A number that is converted.
    pub(super) fn parsed<T>(&mut self, what: &str, convert: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let text = self.number(what)?;
        match convert(text) {
            Some(number) => Ok(number),
            None => self.error_before(format!("expected {what}, found `{text}`")),
        }
    }

    // ---- statements

    /// Statements up to the closing brace.
    fn block(&mut self) -> Result<Block> {
        if self.scope.depth >= MAX_NESTING {
            return self.error(format!("blocks nest deeper than {MAX_NESTING}"));
        }
        self.scope.depth += 1;
        let mut block = Block::new();
        while !self.accept('}') {
            let stmt = self.statement()?;
            block.push(stmt);
        }
        self.scope.depth -= 1;
        Ok(block)
    }

    fn statement(&mut self) -> Result<Stmt> {
        let line = self.token().line;
        if let Kind::Value(_) = self.peek() {
            return self.definition();
        }
        if self.peek_second() == Kind::Mark('=') {
            let var = self.variable()?;
            self.mark('=')?;
            return Ok(Stmt::Assign { var, value: self.value()? });
        }
        let word = self.word("a statement or `}`")?;
        Ok(match word {
            "if" => self.conditional()?,
            "loop" => {
                self.mark('{')?;
                Stmt::Loop(self.block()?)
            }
            "break" => Stmt::Break,
            "continue" => Stmt::Continue,
            "barrier" => Stmt::Barrier,
            "warp_barrier" => Stmt::WarpBarrier,
            "fence" => Stmt::Fence(Scope::Device),
            "block_fence" => Stmt::Fence(Scope::Block),
            "pause" => Stmt::Pause(self.value()?),
            "mark" => Stmt::Mark(self.parsed("a number", |text| text.parse().ok())?),
            "tally" => Stmt::Tally { counters: self.value()? },
            "store" => {
                let (pointer, value) = self.two_values()?;
                Stmt::Store { pointer, value }
            }
            "store_bytes" => {
                let (pointer, value) = self.two_values()?;
                Stmt::StoreBytes { pointer, value }
            }
            "store_vector" => {
                let (pointer, value) = self.two_values()?;
                Stmt::StoreVector { pointer, value, align: self.alignment(pointer)? }
            }
            "compress" => self.compress(None)?.0,
            "return" => {
                let operand = matches!(self.peek(), Kind::Value(_)) && self.token().line == line;
                Stmt::Return(if operand { Some(self.value()?) } else { None })
            }
            "report" => Stmt::Report { code: self.value()? },
            "trap" => Stmt::Trap { code: self.value()? },
            "atomic" => self.atomic(None)?.0,
            "call" => self.call(None)?.0,
            _ => return self.error_before(format!("expected a statement or `}}`, found `{word}`")),
        })
    }

    fn conditional(&mut self) -> Result<Stmt> {
        let condition = self.value()?;
        self.mark('{')?;
        let accept = self.block()?;
        let reject = if self.peek() == Kind::Word("else") {
            self.advance();
            self.mark('{')?;
            self.block()?
        } else {
            Block::new()
        };
        Ok(Stmt::If { condition, accept, reject })
    }

    /// `%n = …`: a `Let`, or a statement with a result.
    fn definition(&mut self) -> Result<Stmt> {
        let Kind::Value(index) = self.peek() else { return self.expected("a value") };
        let index = index as usize;
        if index >= self.most_values {
            return self.error(format!("%{index} is too high a number for a text of this length"));
        }
        if self.scope.defined.get(index) == Some(&true) {
            return self.error(format!("value %{index} is defined twice"));
        }
        let handle = Handle::from_index(index);
        self.advance();
        self.mark('=')?;
        let effect = match self.peek() {
            Kind::Word("atomic") => {
                self.advance();
                Some(if self.peek() == Kind::Word("load") {
                    self.atomic_load(handle)?
                } else {
                    self.atomic(Some(handle))?
                })
            }
            Kind::Word("uniform_load") => {
                self.advance();
                let pointer = self.value()?;
                let ty = self.pointee_of(pointer)?;
                Some((Stmt::UniformLoad { pointer, result: handle }, ty))
            }
            Kind::Word("call") => {
                self.advance();
                Some(self.call(Some(handle))?)
            }
            Kind::Word("compress") => {
                self.advance();
                Some(self.compress(Some(handle))?)
            }
            _ => None,
        };
        let (stmt, value) = match effect {
            Some((stmt, ty)) => (stmt, Value { ty, expr: Expr::Result }),
            None => (Stmt::Let(handle), self.expression()?),
        };
        self.define(handle, value);
        Ok(stmt)
    }

    fn define(&mut self, handle: Handle<Value>, value: Value) {
        let values = &mut self.scope.function.values;
        while values.len() <= handle.index() {
            values.push(Value { ty: Type::BOOL, expr: Expr::Result });
            self.scope.defined.push(false);
        }
        values[handle] = value;
        self.scope.defined[handle.index()] = true;
    }

    /// `%pointer, %value, %mask`; with the type of the result.
    fn compress(&mut self, result: Option<Handle<Value>>) -> Result<(Stmt, Type)> {
        let (pointer, value) = self.two_values()?;
        self.mark(',')?;
        Ok((Stmt::Compress { pointer, value, mask: self.value()?, result }, Type::U32))
    }

    /// `align 16`, which may be left out: then the alignment of what the pointer points to.
    pub(super) fn alignment(&mut self, pointer: Handle<Value>) -> Result<u32> {
        if self.peek() == Kind::Word("align") && matches!(self.peek_second(), Kind::Number(_)) {
            self.advance();
            return self.parsed("a number of bytes", |text| text.parse().ok());
        }
        Ok(match self.scope.function.values[pointer].ty {
            Type::Ptr(_, Pointee::Scalar(scalar)) => scalar.bytes(),
            // Ill-typed, which its user says.
            _ => 1,
        })
    }

    /// `load scope %pointer`.
    fn atomic_load(&mut self, result: Handle<Value>) -> Result<(Stmt, Type)> {
        self.advance();
        let scope: Scope = self.lookup("`block` or `device`", names::scope_of)?;
        let pointer = self.value()?;
        let ty = self.pointee_of(pointer)?;
        Ok((Stmt::AtomicLoad { pointer, scope, result }, ty))
    }

    /// `op scope %pointer, %value`, or `cas scope %pointer, %expected, %new`; with the type of the old value.
    fn atomic(&mut self, result: Option<Handle<Value>>) -> Result<(Stmt, Type)> {
        let cas = self.peek() == Kind::Word("cas");
        let op = if cas {
            self.advance();
            None
        } else {
            Some(self.lookup("`add`, `min`, `max`, `or`, `exchange` or `cas`", names::atomic_of)?)
        };
        let scope: Scope = self.lookup("`block` or `device`", names::scope_of)?;
        let (pointer, operand) = self.two_values()?;
        let ty = self.pointee_of(pointer)?;
        let (op, value) = match op {
            Some(op) => (op, operand),
            None => {
                self.mark(',')?;
                (AtomicOp::CompareExchange(operand), self.value()?)
            }
        };
        Ok((Stmt::Atomic { op, pointer, value, scope, result }, ty))
    }

    /// `name(%a, %b)`; with the type of the result.
    fn call(&mut self, result: Option<Handle<Value>>) -> Result<(Stmt, Type)> {
        let name = self.word("a function's name")?;
        let Some(function) = self.module.functions.find(|function| function.name == name) else {
            return self.error_before(format!("no function `{name}` stands before this one"));
        };
        let ty = self.module.functions[function].result;
        if result.is_some() && ty.is_none() {
            return self.error_before(format!("function `{name}` returns no value"));
        }
        self.mark('(')?;
        let args = self.list(')', Self::value)?;
        Ok((Stmt::Call { function, args, result }, ty.unwrap_or(Type::BOOL)))
    }

    /// The type of the scalar that a pointer points to.
    fn pointee_of(&mut self, pointer: Handle<Value>) -> Result<Type> {
        match self.scope.function.values[pointer].ty {
            Type::Ptr(_, Pointee::Scalar(scalar)) => Ok(Type::Scalar(scalar)),
            _ => self.error_before(format!("%{} is not a pointer to a scalar", pointer.index())),
        }
    }
}
