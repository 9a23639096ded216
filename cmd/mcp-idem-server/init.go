package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/archive"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/clientconf"
)

// initReport is what init says it did. It shows no value of the client's file.
type initReport struct {
	File     string                    `json:"file"`
	From     string                    `json:"from,omitempty"`
	Root     string                    `json:"root,omitempty"`     // the member of From that the entry goes into
	Replaces []string                  `json:"replaces,omitempty"` // the servers whose place the entry takes
	Entry    map[string]map[string]any `json:"entry,omitempty"`
	Left     map[string]string         `json:"left,omitempty"` // servers that stay, and why
	Needs    []string                  `json:"needs,omitempty"`
	Notes    []string                  `json:"notes,omitempty"`
}

func (p *program) init() *cobra.Command {
	var from, out string
	var force bool
	c := &cobra.Command{Use: "init [--from CLIENT_CONFIG] [--out FILE]", Short: "Make a configuration, from that of an MCP client or to begin with", Args: noArgs}
	c.Flags().StringVar(&from, "from", "", "configuration of an MCP client (Claude Desktop, Claude Code, Cursor, VS Code) to take the servers from")
	c.Flags().StringVar(&out, "out", "mcp-idem.json", "the file to write")
	c.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if out == "" || out == standard {
			return usagef("--out wants the name of a file")
		}
		r := initReport{File: out, From: from}
		text, err := clientconf.Starting(), error(nil)
		if c.Flags().Changed("from") {
			text, err = r.adopt()
		}
		if err != nil {
			return err
		}
		if err := archive.Create(out, force, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return err
		}
		if p.flags.json {
			return p.printJSON(r)
		}
		return p.printInit(&r)
	}
	return c
}

// adopt is the file's text with the servers of the client's.
func (r *initReport) adopt() ([]byte, error) {
	text, err := os.ReadFile(r.From)
	if err != nil {
		return nil, usageError{err}
	}
	if a, b := absolute(r.From), absolute(r.File); a == b {
		return nil, usagef("--from and --out are one file; the client needs its own")
	}
	client, err := clientconf.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", r.From, err)
	}
	name, entry := client.Entry(ownCommand(), absolute(r.File))
	r.Root, r.Replaces, r.Left, r.Notes = client.Root, client.Taken, client.Left, client.Notes
	r.Entry = map[string]map[string]any{name: entry}
	for _, v := range slices.Sorted(maps.Keys(client.Variables)) {
		if client.Variables[v] == "" {
			r.Needs = append(r.Needs, v)
		}
	}
	return client.File()
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// ownCommand is how a client starts this program: by its name where that is
// found.
func ownCommand() string {
	const name = "mcp-idem-server"
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	if self, err := os.Executable(); err == nil {
		return self
	}
	return name
}

func (p *program) printInit(r *initReport) error {
	if r.From == "" {
		fmt.Fprintf(p.out, "%s is written, to be edited.\n", r.File)
		return nil
	}
	fmt.Fprintf(p.out, "%s is written, readable by you alone: it holds what %s says of the servers, secrets too.\n", r.File, r.From)
	for _, name := range slices.Sorted(maps.Keys(r.Left)) {
		fmt.Fprintf(p.out, "%q stays where it is: %s.\n", clean(name), clean(r.Left[name]))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(p.out, "note: %s.\n", clean(note))
	}
	if len(r.Needs) > 0 {
		fmt.Fprintf(p.out, "note: the gateway's environment has to hold %s.\n", strings.Join(r.Needs, ", "))
	}
	var q []string
	for _, name := range r.Replaces {
		q = append(q, fmt.Sprintf("%q", clean(name)))
	}
	fmt.Fprintf(p.out, "\nIn %s, under %s, put this in the place of %s:\n\n", r.From, r.Root, strings.Join(q, ", "))
	if err := p.printJSON(r.Entry); err != nil {
		return err
	}
	if len(r.Replaces) > 1 {
		fmt.Fprintln(p.out, "\nTo the client, the tools are then called SERVER__TOOL.")
	}
	fmt.Fprintf(p.out, "\nWhat that guarantees for each tool: mcp-idem-server doctor --config %s\n", shell(r.File))
	return nil
}
