#!/usr/bin/env python3
"""Lets TCP over IPv4 pass devices of this network namespace in segments of up to BYTES uncut, more than the 64 KiB
that is the default: `ip link set gso_ipv4_max_size BYTES gro_ipv4_max_size BYTES` of iproute2 6.3, for older ones.
Kernels before 6.3 know no such thing and leave it.   tools/netlab/segments.py BYTES DEVICE..."""
import socket
import struct
import sys

# linux/rtnetlink.h, linux/if_link.h
RTM_NEWLINK, NLM_F_REQUEST, NLM_F_ACK = 16, 1, 4
IFLA_GSO_IPV4_MAX_SIZE, IFLA_GRO_IPV4_MAX_SIZE = 63, 64

size = int(sys.argv[1])
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
link.bind((0, 0))
for device in sys.argv[2:]:
    body = struct.pack("BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(device), 0, 0)
    for attribute in (IFLA_GSO_IPV4_MAX_SIZE, IFLA_GRO_IPV4_MAX_SIZE):
        body += struct.pack("HHI", 8, attribute, size)
    link.send(struct.pack("IHHII", 16 + len(body), RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
    (error,) = struct.unpack_from("i", link.recv(4096), 16)
    if error:
        sys.exit(f"segments.py: {device} takes no segments of {size} bytes: error {-error}")
