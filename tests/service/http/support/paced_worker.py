"""An engine process without a model: `python paced_worker.py PACE CONFIGURATION`.

Each PACE seconds, one frame with one token for every open sequence, as a step would send it.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from flatwake_service.engine.messages import (
    Cancel,
    Device,
    Frames,
    SequenceTokens,
    Shutdown,
    Started,
    Submit,
    Tokens,
    decode_down,
    encode,
)


def main() -> None:
    pace, config = float(sys.argv[1]), json.loads(sys.argv[2])
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(config["socket"])
    device = Device("none", "none", 0)
    channel.sendall(encode(Started(8192, 65536, 1 << 20, "reference", device, 0.0, 0, 8192)))
    frames, open_sequences, new = Frames(), {}, []
    step, due = 0, time.monotonic()
    while True:
        wait = max(0.0, due - time.monotonic()) if open_sequences else None
        if select.select([channel], [], [], wait)[0]:
            data = channel.recv(1 << 20)
            if not data:
                return
            for body in frames.feed(data):
                match decode_down(body):
                    case Submit() as message:
                        open_sequences[message.sequence] = [message, 0]
                        new.append(message.sequence)
                    case Cancel(sequence):
                        open_sequences.pop(sequence, None)
                    case Shutdown():
                        return
            continue
        if not open_sequences:
            continue
        due = max(due + pace, time.monotonic() - pace)
        step += 1
        entries = []
        for sequence, state in list(open_sequences.items()):
            message, count = state
            state[1] = count = count + 1
            finish = "length" if count >= message.max_tokens else None
            if finish:
                del open_sequences[sequence]
            entries.append(SequenceTokens(sequence, (300 + count * 7 % 20000,), (), finish))
        channel.sendall(encode(Tokens(step, time.monotonic(), tuple(entries), tuple(new))))
        new.clear()


if __name__ == "__main__":
    main()
