package idem

// Find returns the raw bytes of the member at a path, as a part of args; ok is
// false when there is none. The empty path is the whole value. The path goes
// through objects only. What comes behind the member is not looked at: refusing
// bad arguments is [HashRequest]'s work.
func Find(args []byte, p Path) (value []byte, ok bool, err error) {
	c := newCanon()
	defer c.free()
	c.reset(args)
	for _, name := range p {
		if k := c.dec.PeekKind(); k != '{' && k != 0 {
			return nil, false, nil
		}
		if found, err := c.seek(name); err != nil || !found {
			return nil, false, err
		}
	}
	raw, err := c.dec.ReadValue()
	if err != nil {
		return nil, false, c.bad(err)
	}
	end := int(c.dec.InputOffset())
	return args[end-len(raw) : end : end], true, nil
}

// seek reads into the object that comes next, up to the value of a member.
func (c *canon) seek(name string) (bool, error) {
	if err := c.open(); err != nil {
		return false, err
	}
	for c.dec.PeekKind() != '}' {
		raw, err := c.dec.ReadValue()
		if err != nil {
			return false, c.bad(err)
		}
		if c.names, err = unquote(c.names[:0], raw); err != nil {
			return false, c.bad(err)
		}
		if string(c.names) == name {
			return true, nil
		}
		if err := c.dec.SkipValue(); err != nil {
			return false, c.bad(err)
		}
	}
	return false, nil
}
