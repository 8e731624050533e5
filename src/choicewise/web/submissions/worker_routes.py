"""What workers ask: a submission under a lease, parts in and out, and the end of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from choicewise.errors import ChoicewiseError
from choicewise.submissions.desk import Desk
from choicewise.submissions.queue import SECONDS
from choicewise.submissions.trouble import NoSubmission
from choicewise.submissions.worker_version import check_worker_version
from choicewise.web.server.door import TooLarge
from choicewise.web.server.threads import Threads
from choicewise.web.submissions.answers import answer, refusal
from choicewise.web.submissions.content import count, fields, text, truth

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

PIECE = 1_048_576
"""Bytes of a part that are written at once."""

_WORKER = 80
"""Characters of a worker's name."""

Made = TypeVar("Made")


class WorkerRoutes:
    """The routes below ``/work``; the guard has looked at the token."""

    def __init__(self, desk: Desk, tell: Callable[[str], None]) -> None:
        self._desk, self._tell, self._threads, self._finishing = desk, tell, Threads(8), Threads(2)

    def routes(self) -> "list[Route]":
        """All of them."""
        from starlette.requests import ClientDisconnect, Request
        from starlette.routing import Route

        def route(path: str, handler: "Callable[[Request], object]", *methods: str) -> Route:
            async def handled(request: Request) -> "Response":
                try:
                    return await handler(request)  # type: ignore[misc]
                except (ChoicewiseError, TooLarge) as error:
                    return refusal(error, self._tell)
                except ClientDisconnect:
                    return answer({}, 400)  # nobody hears it

            return Route(path, handled, methods=[*methods])

        return [
            route("/work/lease", self._lease, "POST"),
            route("/work/{id}/renew", self._renew, "POST"),
            route("/work/{id}/files", self._files, "POST"),
            route("/work/{id}/finish", self._finish, "POST"),
            route("/work/{id}/fail", self._fail, "POST"),
            route("/work/{id}/part/{sha256}", self._put_part, "PUT"),
            route("/work/{id}/part/{sha256}", self._get_part, "GET"),
        ]

    async def _lease(self, request: "Request") -> "Response":
        from starlette.responses import Response

        values = await fields(request)
        check_worker_version(text(values, "version", default=""))
        worker = " ".join(text(values, "worker", _WORKER, "").split()) or "unnamed"
        lease = await self._threads.run(lambda: self._desk.lease(worker))
        if lease is None:
            return Response(status_code=204, headers={"cache-control": "no-store"})
        return answer(self._desk.lease_json(lease))

    async def _renew(self, request: "Request") -> "Response":
        values = await fields(request)
        name, secret = request.path_params["id"], text(values, "lease")
        done, total = count(values, "done"), count(values, "total")
        await self._threads.run(lambda: self._desk.queue.renew(name, secret, min(done, total), total))
        return answer({"seconds": SECONDS})

    async def _files(self, request: "Request") -> "Response":
        values = await fields(request)
        name, secret = request.path_params["id"], text(values, "lease")
        await self._threads.run(lambda: self._desk.list_files(name, secret, values.get("files")))
        return answer({})

    async def _finish(self, request: "Request") -> "Response":
        values = await fields(request)
        name, secret = request.path_params["id"], text(values, "lease")
        await self._finishing.run(lambda: self._desk.finish(name, secret))
        return answer({})

    async def _fail(self, request: "Request") -> "Response":
        values = await fields(request)
        name, secret = request.path_params["id"], text(values, "lease")
        reason, again = text(values, "reason"), truth(values, "again")
        counts = values.get("counts") is not False
        await self._threads.run(lambda: self._desk.fail(name, secret, reason, again, counts))
        return answer({})

    async def _put_part(self, request: "Request") -> "Response":
        """Take a part piece by piece; what is refused is read to its end, so that who sends it hears why."""
        name, sha256, secret = _part(request)
        parts, arriving = self._desk.parts, None
        try:
            await self._threads.run(lambda: self._desk.queue.check(name, secret))
            if not await self._threads.run(lambda: parts.has(sha256)):
                arriving = parts.begin(sha256)
        except ChoicewiseError:
            await _drain(request)
            raise
        if arriving is None:
            await _drain(request)
            return answer({})
        try:
            await self._take(request, arriving.add)
            await self._threads.run(lambda: self._desk.count_sent(name, secret, arriving.size))
            await self._threads.run(arriving.end)
        finally:
            await self._threads.run(arriving.drop)
        return answer({}, 201)

    async def _take(self, request: "Request", add: Callable[[bytes], None]) -> None:
        waiting = bytearray()
        async for piece in request.stream():
            waiting += piece
            if len(waiting) >= PIECE:
                whole = bytes(waiting)
                waiting.clear()
                await self._threads.run(lambda whole=whole: add(whole))  # type: ignore[misc]
        rest = bytes(waiting)
        await self._threads.run(lambda: add(rest))

    async def _get_part(self, request: "Request") -> "Response":
        from starlette.responses import FileResponse

        name, sha256, secret = _part(request)
        await self._threads.run(lambda: self._desk.queue.check(name, secret))
        listed = await self._threads.run(lambda: self._desk.queue.files(name))
        if sha256 not in listed.values() or not self._desk.parts.has(sha256):
            raise NoSubmission(f"{name} has no part {sha256}; list what the board has with /work/lease")
        return FileResponse(self._desk.parts.path(sha256), media_type="application/octet-stream")


def _part(request: "Request") -> tuple[str, str, str]:
    """The submission, the sha256 and the secret of the lease."""
    return request.path_params["id"], request.path_params["sha256"], request.headers.get("x-lease", "")


async def _drain(request: "Request") -> None:
    async for _ in request.stream():
        pass
