"""The encoders of each kind, made when they are first needed and shared by all requests."""

from typing import TYPE_CHECKING, TypeAlias

from dralab.api.kinds import Kind
from dralab.apiserver.http.encodings.encoding import ObjectEncoder, PartialEncoder
from dralab.apiserver.http.negotiation import AnswerForm
from dralab.apiserver.verbs.state.context import Context, Scope
from dralab.apiserver.verbs.state.options import Query

if TYPE_CHECKING:
    from dralab.apiserver.http.encodings.cbor_messages import CborEncoder
    from dralab.apiserver.http.encodings.protobuf_answers import (
        KeptMessages,
        PartialProtobufEncoder,
        ProtobufEncoder,
    )
    from dralab.apiserver.http.encodings.tabular import TableEncoder

    AnyEncoder: TypeAlias = (
        ObjectEncoder
        | PartialEncoder
        | TableEncoder
        | ProtobufEncoder
        | PartialProtobufEncoder
        | CborEncoder
    )


class Encoders:
    """Finds the encoder of a kind's objects in the form that a client asks for."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._plain: dict[int, ObjectEncoder] = {}
        self._protobuf: dict[tuple[int, bool], ProtobufEncoder] = {}
        self._kept: KeptMessages | None = None
        context.on_kinds_changed += [self._plain.clear, self._protobuf.clear]

    def plain(self, kind: Kind, scope: Scope | None = None) -> ObjectEncoder:
        """Return the encoder of a kind's JSON, for one request where others convert its objects."""
        if (
            scope is not None
            and kind.custom is not None
            and kind.hub in self.context.rules.webhooks
        ):
            return ObjectEncoder(kind, self.context.rules, scope)
        found = self._plain.get(id(kind))
        if found is None or found.kind is not kind:
            found = self._plain[id(kind)] = ObjectEncoder(kind, self.context.rules)
        return found

    def protobuf(
        self, kind: Kind, form: AnswerForm, *, read: bool
    ) -> "ProtobufEncoder | PartialProtobufEncoder":
        """Return the encoder of a kind's protobuf, or of its metadata alone.

        `read` says that its objects are read from the store, which are kept in this form.
        """
        # Imported when needed: many servers are never asked for it.
        from dralab.apiserver.http.encodings.protobuf_answers import (
            KeptMessages,
            PartialProtobufEncoder,
            ProtobufEncoder,
        )

        if form.as_:
            return PartialProtobufEncoder(form.version)
        if self._kept is None:
            self._kept = KeptMessages()
            self.context.store.when_undone(self._kept.clear)
        place = (id(kind), read)
        found = self._protobuf.get(place)
        if found is None or found.kind is not kind:
            kept = self._kept if read else None
            found = self._protobuf[place] = ProtobufEncoder(kind, self.context.rules, kept)
        return found

    def tables(
        self, kind: Kind, form: AnswerForm, query: Query, scope: Scope | None
    ) -> "TableEncoder":
        """Return the encoder of a kind's rows, as of now."""
        from dralab.apiserver.http.encodings.tabular import TableEncoder, included

        return TableEncoder(
            kind,
            self.context.rules,
            self.context.clock,
            version=form.version,
            include=included(query),
            scope=scope,
        )

    def whole(
        self,
        kind: Kind,
        form: AnswerForm,
        query: Query,
        *,
        scope: Scope | None = None,
        read: bool = True,
    ) -> "AnyEncoder":
        """Return what writes objects, lists and events in a form; without a request for a watch.

        What is no event is written in JSON where the form is CBOR or YAML, and converted after it.
        """
        if form.encoding == "protobuf":
            return self.protobuf(kind, form, read=read)
        if form.as_ == "Table":
            return self.tables(kind, form, query, scope)
        found = PartialEncoder(form.version) if form.as_ else self.plain(kind, scope)
        if form.encoding == "cbor" and scope is None:
            from dralab.apiserver.http.encodings.cbor_messages import CborEncoder

            return CborEncoder(found)
        return found
