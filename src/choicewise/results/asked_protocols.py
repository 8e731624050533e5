"""The protocols of a run, read from what its manifest says of them."""

from pathlib import Path

from choicewise.errors import ProtocolError, StoreError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import parse_signature
from choicewise.records.manifest import Manifest


def asked_protocols(folder: Path, manifest: Manifest) -> dict[str, Protocol]:
    """Name → protocol.  StoreError where a signature means nothing here: another version of Choicewise wrote it."""
    protocols = {}
    for name, text in manifest.protocols.items():
        try:
            protocols[name] = parse_signature(text)
        except ProtocolError as error:
            version = manifest.versions.get("choicewise", "another version")
            raise StoreError(
                f"{folder} was made by Choicewise {version}, whose protocol {name!r} this version does not know "
                f"({error}); read it with that version"
            ) from error
    return protocols
