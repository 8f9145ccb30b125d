"""Reads Chakra execution traces with nothing but the format of protocol buffers and the fields of et_def.proto.

    chakra.py FOLDER/NAME RANKS            what NAME.0.et ... hold; fails with the rule that is broken
    chakra.py FOLDER/NAME RANKS SPEED      and how long it takes over links of SPEED bytes a second without latency,
                                           played back as a network simulator would
"""
import heapq
import sys

COMP, SEND, RECV = 4, 5, 6


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            assert at + length <= len(data), "a field is longer than its message"
            value, at = data[at:at + length], at + length
        else:
            raise AssertionError(f"field {key >> 3} has wire type {key & 7}")
        yield key >> 3, value


def packed(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def attribute(data):
    name, kind, value = "", None, None
    for field, content in fields(data):
        if field == 1:
            name = content.decode()
        else:
            kind, value = field, content
    return name, kind, value


def messages(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        length, at = varint(data, at)
        assert at + length <= len(data), f"{path} ends inside a message"
        yield data[at:at + length]
        at += length


def node(data):
    result = {"id": 0, "duration": 0, "data": [], "ctrl": [], "attr": {}}
    names = {1: "id", 2: "name", 3: "type", 4: "ctrl", 5: "data", 7: "duration"}
    for field, value in fields(data):
        if field == 10:
            name, kind, content = attribute(value)
            result["attr"][name] = (kind, content)
        else:
            result[names[field]] = packed(value) if field in (4, 5) else value
    return result


def read(path):
    all_messages = list(messages(path))
    facts = {}
    for field, value in fields(all_messages[0]):
        if field == 2:
            name, kind, content = attribute(value)
            assert kind == 29, "a fact is no string"
            facts[name] = content.decode()
    return facts, [node(m) for m in all_messages[1:]]


def play(files, speed):
    """Milliseconds until all nodes are done: a compute lane a rank, in order; a port a rank, one message at a time."""
    queue, serial, now = [], 0, 0.0
    waiting = [[len(set(n["data"] + n["ctrl"])) for n in nodes] for nodes in files]
    children = [[[] for _ in nodes] for nodes in files]
    for rank, nodes in enumerate(files):
        for n in nodes:
            for parent in set(n["data"] + n["ctrl"]):
                children[rank][parent].append(n["id"])
    lane, out, into = [0.0] * len(files), [0.0] * len(files), [0.0] * len(files)
    posted, delivered = {}, {}

    def end(time, rank, number):
        nonlocal serial
        serial += 1
        heapq.heappush(queue, (time, serial, rank, number))

    def start(time, rank, number):
        n = files[rank][number]
        if n["type"] == COMP:
            lane[rank] = max(time, lane[rank]) + n["duration"] * 1e-3
            end(lane[rank], rank, number)
            return
        message = tuple(n["attr"][k][1] for k in ("comm_src", "comm_dst", "comm_tag"))
        if n["type"] == SEND:
            begin = max(time, out[rank], into[message[1]])
            out[rank] = into[message[1]] = delivered[message] = begin + n["attr"]["comm_size"][1] / speed * 1e3
            end(delivered[message], rank, number)
        else:
            posted[message] = (rank, number)
        if message in posted and message in delivered:
            end(max(time, delivered[message]), *posted[message])

    for rank, nodes in enumerate(files):
        for number in range(len(nodes)):
            if not waiting[rank][number]:
                start(0.0, rank, number)
    done = 0
    while queue:
        now, _, rank, number = heapq.heappop(queue)
        done += 1
        for child in children[rank][number]:
            waiting[rank][child] -= 1
            if not waiting[rank][child]:
                start(now, rank, child)
    assert done == sum(map(len, files)), "some nodes wait for ever"
    return now


def main(name, ranks, speed):
    ends, sent, computed, files = {}, [0] * ranks, [0] * ranks, []
    for rank in range(ranks):
        facts, nodes = read(f"{name}.{rank}.et")
        files.append(nodes)
        assert facts["times"] == "simulated", facts
        assert facts["ranks"] == str(ranks), facts
        for index, n in enumerate(nodes):
            assert n["id"] == index, "numbers do not count up"
            assert all(d < index for d in n["data"] + n["ctrl"]), "a dependency is not earlier"
            assert n["attr"]["is_cpu_op"] == (27, 0)
            if n["type"] == COMP:
                computed[rank] += n["duration"]
                continue
            assert n["type"] in (SEND, RECV), n
            kinds = [n["attr"][k][0] for k in ("comm_src", "comm_dst", "comm_tag", "comm_size")]
            assert kinds == [7, 7, 7, 9], "attributes have other types than readers look for"
            source, target, tag, size = (n["attr"][k][1]
                                         for k in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
            assert (source if n["type"] == SEND else target) == rank, "a message of somebody else"
            sent[rank] += size if n["type"] == SEND else 0
            end = (source, target, tag)
            assert (end, n["type"]) not in ends, f"two messages {end}"
            ends[end, n["type"]] = size
    for (end, kind), size in ends.items():
        assert ends.get((end, SEND + RECV - kind)) == size, f"message {end} has no other end"
    played = f", played in {play(files, speed):.4f} ms" if speed else ""
    print(f"sent {max(sent)} bytes, computed {max(computed)} us, messages {len(ends) // 2}{played}")


main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0)
