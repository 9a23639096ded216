package pgtest

import (
	"io"
	"os"
	"strings"
)

// logLines is how much of a server's log a failed test shows.
const logLines = 60

// showLog shows what the server logs from now on when the test fails.
func (s *Server) showLog() {
	var from int64
	if st, err := os.Stat(s.logFile()); err == nil {
		from = st.Size()
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the log of PostgreSQL on port %d:\n%s", s.port, s.log(from))
		}
	})
}

// log is the end of the server's log, without what came before a position.
func (c *cluster) log(from int64) string {
	f, err := os.Open(c.logFile())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}
