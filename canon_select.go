package idem

// filter is what is left of a selection at some depth. The zero filter keeps
// everything.
type filter struct {
	only   bool // still on the way to what Only names
	except bool // Except may still name something below
}

func (f filter) on() bool { return f.only || f.except }

// enter decides about the member that c.path leads to, and what holds below it.
func (c *canon) enter(f filter) (sub filter, keep bool) {
	for _, p := range c.sel.Except {
		if len(p) == len(c.path) && c.leads(p) {
			return filter{}, false
		}
	}
	if !f.only {
		return f, true
	}
	for _, p := range c.sel.Only {
		if len(p) < len(c.path) || !c.leads(p) {
			continue
		}
		keep = true
		if len(p) == len(c.path) {
			f.only = false
			break
		}
	}
	if !keep {
		return filter{}, false
	}
	return f, true
}

// leads reports whether c.path is a beginning of p.
func (c *canon) leads(p Path) bool {
	for i, s := range c.path {
		if string(c.name(s)) != p[i] {
			return false
		}
	}
	return true
}
