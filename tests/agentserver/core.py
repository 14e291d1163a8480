"""A program: the encryption service of the Agent Server, called over gRPC as its Go core does.

Reads a call a line as JSON, `[method, model, field, data in hex]`, and prints what the service answers:
`[data, replacement]` in hex, or the text of its error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from typing import Any


async def main() -> None:
    grpc = import_module("grpc")
    messages = import_module("langgraph_grpc_common.proto.encryption_pb2")
    service = import_module("langgraph_grpc_common.proto.encryption_pb2_grpc")
    implementation = import_module("langgraph_api.grpc.servicers.encryption").EncryptionServicerImpl()
    server = grpc.aio.server()
    service.add_EncryptionServicer_to_server(implementation, server)
    server.add_insecure_port("unix:core.sock")
    await server.start()
    async with grpc.aio.insecure_channel("unix:core.sock") as channel:
        core = service.EncryptionStub(channel)
        while line := await asyncio.to_thread(sys.stdin.readline):
            method, model, field, data = json.loads(line)
            context = messages.EncryptionContext(model=model, field=field)
            named: dict[str, Any] = {"context": context}
            if method == "DecryptJSON":
                named = {"model": model, "field": field}
            request = getattr(messages, f"{method}Request")(data=bytes.fromhex(data), **named)
            try:
                reply = await getattr(core, method)(request)
                answer = [reply.data.hex(), getattr(reply, "replacement", b"").hex()]
            except grpc.aio.AioRpcError as error:
                answer = error.details()
            sys.stdout.write(f"{json.dumps(answer)}\n")
            sys.stdout.flush()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
