package pgtest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
)

// reserve finds a TCP port that stays free for a server while that is down: the
// system gives none of these to outgoing connections, and other test processes
// see by its UDP twin, which we hold, that it is taken.
func reserve(host string) (port int, free io.Closer, err error) {
	for range 100 {
		port = 10240 + rand.IntN(32768-10240)
		addr := net.JoinHostPort(host, strconv.Itoa(port))
		var twin net.PacketConn
		if twin, err = net.ListenPacket("udp", addr); err != nil {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return port, twin, l.Close()
		}
		_ = twin.Close()
	}
	return 0, nil, fmt.Errorf("no free port: %w", err)
}
