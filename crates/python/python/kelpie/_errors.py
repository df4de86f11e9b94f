"""Exceptions, named as DB-API 2.0 (PEP 249) names them."""


class Warning(Exception):  # noqa: A001 - the name is PEP 249's
    """Something to know, which is no error."""


class Error(Exception):
    """Any error of Kelpie's."""


class InterfaceError(Error):
    """The package was used wrongly: a closed session, an object that is no table, a forked process."""


class DatabaseError(Error):
    """Any error of a statement."""


class DataError(DatabaseError):
    """Values do not fit: an overflow, a division by zero, a text that is no number."""


class OperationalError(DatabaseError):
    """Something outside of the statement failed: files, memory, a device."""


class IntegrityError(DatabaseError):
    """A constraint is broken. Kelpie has none; the class is there because DB-API 2.0 asks for it."""


class InternalError(DatabaseError):
    """A fault of the engine."""


class ProgrammingError(DatabaseError):
    """The statement is wrong: its syntax, a name, a type, a setting, the number of its parameters."""


class NotSupportedError(DatabaseError):
    """Kelpie does not have that."""
