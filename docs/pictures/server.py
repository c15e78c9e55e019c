# SPDX-License-Identifier: BSD-2-Clause
"""A web server, and its clients in another process, for a flame graph."""
import http.client
import json
import multiprocessing
import os
import xml.dom.minidom
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Node:
    def __init__(self, children):
        self.children = children
        for child in children:
            child.parent = self  # a cycle, which only the collector frees


def category_tree(depth):
    return Node([category_tree(depth - 1) for _ in range(3)] if depth else [])


def find_products():
    return category_tree(5)


def read_feed():
    text = "<feed>" + "<item><name>tea</name></item>" * 60 + "</feed>"
    return xml.dom.minidom.parseString(text)


def order_history():
    orders = [{"id": i, "lines": [[i, n] for n in range(20)]} for i in range(50)]
    return json.loads(json.dumps(orders))


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pages = {"/search": find_products, "/feed": read_feed, "/orders": order_history}

    def do_GET(self):
        self.pages[self.path]()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def client(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        while True:
            for path in Shop.pages:
                connection.request("GET", path)
                connection.getresponse().read()
    except (ConnectionError, http.client.HTTPException):
        pass  # the server has ended


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        for _ in range(2):
            multiprocessing.Process(target=client, args=(server.server_port,), daemon=True).start()
        print(os.getpid(), flush=True)
        server.serve_forever()
