package wireup

// follow is the part of a member below a root, after level 0.
func (c *creation) follow() (*Table, error) {
	t, fs := c.result()
	if len(fs) > 0 {
		c.commByLevel[0].Send(0, faultMessage(Abort, fs))
		return nil, c.error(fs)
	}
	c.commByLevel[0].Send(0, newMessage(Confirm, nil))
	c.hasConfirmed = true
	m, fs := c.receive(0, 0, 0, committing, Commit)
	if len(fs) == 0 {
		return t, nil
	}
	err := c.error(fs)
	if m == nil || m.kind() == Lost {
		c.port.Refuse(t.ID(), err)
	}
	return nil, err
}

// result waits for the table, and accepts it.
func (c *creation) result() (*Table, Faults) {
	m, fs := c.receive(0, 0, 0, distributing, Result, Shared)
	if len(fs) == 0 && m.kind() == Shared {
		b, err := c.port.Open(c.levels[0], m.body())
		if err == nil {
			return c.open(b, c.rank(0, 0))
		}
		c.commByLevel[0].Send(0, newMessage(Unshared, nil))
		m, fs = c.receive(0, 0, 0, distributing, Result)
	}
	if len(fs) > 0 {
		return nil, fs
	}
	return c.open(m.body(), c.rank(0, 0))
}
