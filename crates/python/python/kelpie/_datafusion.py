"""Kelpie as the planner of sessions of the package `datafusion`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _kelpie, _session
from ._errors import NotSupportedError

if TYPE_CHECKING:
    import datafusion

#: The version of DataFusion that Kelpie stands on, and the package has to have.
MAJOR = "55"


class _Codec:
    __datafusion_codec_id__ = "kelpie"

    def __init__(self, extension: Any):
        self._extension = extension

    def __datafusion_logical_extension_codec__(self, session: Any = None) -> object:
        return self._extension.logical_codec()

    def __datafusion_physical_extension_codec__(self, session: Any = None) -> object:
        return self._extension.physical_codec()


class _Extension:
    """What the session asks for its codecs and its planner."""

    def __init__(self, extension: Any):
        self._extension = extension

    def __datafusion_session_components__(self, ctx: Any) -> Any:
        from datafusion.extensions import SessionExtensionComponents

        codec = _Codec(self._extension)
        return SessionExtensionComponents(logical_extension_codecs=(codec,), physical_extension_codecs=(codec,))

    def __datafusion_session_planner__(self, ctx: Any, fallback: object) -> object:
        return self._extension.planner(ctx, fallback)


def install(ctx: datafusion.SessionContext, **options: Any) -> datafusion.SessionContext:
    """Makes Kelpie plan and run the queries of a session of the package ``datafusion``, and gives the context to go on with.

    Options are those of :func:`kelpie.connect`: ``device="cpu"``, ``threads=4``. What Kelpie does not plan, the session's own planner does.
    """
    import datafusion

    if datafusion.__version__.split(".")[0] != MAJOR:
        raise NotSupportedError(f"the package datafusion has version {datafusion.__version__}; Kelpie goes with version {MAJOR}")
    if not hasattr(_kelpie, "DataFusionExtension"):
        raise NotSupportedError("this build of Kelpie was made without the feature datafusion-package")
    settings = {f"kelpie.{name}": _session._setting(value) for name, value in options.items()}
    return ctx.with_extensions(_Extension(_kelpie.DataFusionExtension(list(settings.items()))))
