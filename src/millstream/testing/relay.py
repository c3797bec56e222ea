"""A network that a test can cut: a port that passes everything on to another one."""

import socket
import threading


class Relay:
    """A port that passes everything on to another one, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_cut = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection, and every new one at once."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                _shut(each)

    def heal(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        _shut(self._listening)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            if self._is_cut:
                one.close()
                continue
            try:
                other = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                one.close()
                continue
            for source, sink in ((one, other), (other, one)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with self._lock:
            # A connection that was accepted just before the cut.
            if self._is_cut:
                _shut(source)
            self._open.add(source)
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            _shut(sink)
            with self._lock:
                self._open.discard(source)
            source.close()


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It is closed already.
        return
