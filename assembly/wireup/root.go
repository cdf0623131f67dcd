package wireup

import "math/bits"

// lead is the part of a node root, after level 0, with the part or the faults of its node.
func (c *creation) lead(part Part, fs Faults) (*Table, error) {
	top := len(c.levels) - 1
	for l := 1; l <= top; l++ {
		fs = fs.merge(c.join(l, fs))
		if len(fs) == 0 {
			fs = c.gather(l, &part)
		}
	}
	var result message
	if len(fs) == 0 && c.levels[top].SelfIndex == 0 {
		result, fs = c.decide(part)
	} else if len(fs) == 0 {
		result, fs = c.request(part)
	}
	part = Part{}
	if len(fs) > 0 {
		return nil, c.abort(fs)
	}
	t, fs := c.distribute(result)
	if len(fs) == 0 {
		fs = c.confirmations(result)
	}
	c.port.Hide()
	if len(fs) > 0 {
		return nil, c.abort(fs)
	}
	return c.verdict(t)
}

// join joins a level above 0. It returns the faults of the level and of those below it.
func (c *creation) join(level int, own Faults) Faults {
	payloads, fs := c.construct(level, own)
	for i, b := range payloads {
		p, err := DecodePayload(b)
		if err != nil {
			fs = fs.merge(fault(c.rank(level, i), Garbage, err.Error()))
			continue
		}
		fs = fs.merge(p.Faults)
	}
	return fs
}

// children returns the children in the tree of a level.
func (c *creation) children(level int) []int {
	if l := c.levels[level]; c.commByLevel[level] != nil {
		return children(l.SelfIndex, len(l.Members))
	}
	return nil
}

// gather adds the parts of the children of a level.
func (c *creation) gather(level int, part *Part) Faults {
	for i, child := range c.children(level) {
		m, fs := c.receive(level, child, i, gathering, Gather)
		if len(fs) > 0 {
			return fs
		}
		p, err := decodePart(m.body(), c.Layout.Size())
		if err != nil {
			return fault(c.rank(level, child), Garbage, err.Error())
		}
		if err := part.Merge(p); err != nil {
			return c.failed(err, c.rank(level, child))
		}
	}
	return nil
}

// decide is the decision of the coordinator, as a message.
func (c *creation) decide(part Part) (message, Faults) {
	id, err := c.port.Draw()
	if err != nil {
		return nil, c.failed(err, c.self())
	}
	table, err := part.Decide(id, c.Layout.Size(), c.name)
	if err != nil {
		return nil, c.failed(err, c.self())
	}
	return newMessage(Result, table), nil
}

// request sends the part to the parent, and returns the message with the result, which it checks before others blame this process for it.
func (c *creation) request(part Part) (message, Faults) {
	top := len(c.levels) - 1
	m, err := part.encode(newMessage(Gather, nil))
	if err != nil {
		return nil, c.failed(err, c.self())
	}
	up, child := c.parent()
	c.commByLevel[top].Send(up, m)
	result, fs := c.receive(top, up, child, distributing, Result)
	if len(fs) > 0 {
		return nil, fs
	}
	if _, err := OpenTable(result.body(), c.Layout.Size()); err != nil {
		return nil, fault(c.rank(top, up), Garbage, err.Error())
	}
	return result, nil
}

// parent returns the parent in the last level, and the index of this process among its children.
func (c *creation) parent() (index, child int) {
	self := c.levels[len(c.levels)-1].SelfIndex
	return parent(self), bits.TrailingZeros(uint(self))
}

// distribute sends the message with the table to the children, shares the table on the node, and accepts it. Faults of its records are those
// of the process that it came from.
func (c *creation) distribute(result message) (*Table, Faults) {
	c.below(1, result)
	table, from := result.body(), c.source()
	shared, place, err := c.port.Share(table)
	if err != nil {
		c.node(result)
		return c.open(table, from)
	}
	c.node(newMessage(Shared, place))
	return c.open(shared, from)
}

// source returns the rank in the job of the process with the table before this root, which is the root itself if it decides.
func (c *creation) source() uint32 {
	top := len(c.levels) - 1
	if c.levels[top].SelfIndex == 0 {
		return c.self()
	}
	up, _ := c.parent()
	return c.rank(top, up)
}

// node sends a message to the members of the node.
func (c *creation) node(m message) {
	for i := 1; i < len(c.levels[0].Members) && c.commByLevel[0] != nil; i++ {
		c.commByLevel[0].Send(i, m)
	}
}

// below sends a message to the children of all levels from one on, the largest subtrees first.
func (c *creation) below(from int, m message) {
	for level := len(c.levels) - 1; level >= max(from, 1); level-- {
		list := c.children(level)
		for i := len(list) - 1; i >= 0; i-- {
			c.commByLevel[level].Send(list[i], m)
		}
	}
	if from == 0 {
		c.node(m)
	}
}

// confirmations waits for the confirmations of the node and of the children. A member that cannot open the shared table
// receives the result.
func (c *creation) confirmations(result message) Faults {
	for i := 1; i < len(c.levels[0].Members); i++ {
		m, fs := c.receive(0, i, 0, confirming, Confirm, Unshared)
		if len(fs) == 0 && m.kind() == Unshared {
			c.commByLevel[0].Send(i, result)
			_, fs = c.receive(0, i, 0, confirming, Confirm)
		}
		if len(fs) > 0 {
			return fs
		}
	}
	for level := 1; level < len(c.levels); level++ {
		for i, child := range c.children(level) {
			if _, fs := c.receive(level, child, i, confirming, Confirm); len(fs) > 0 {
				return fs
			}
		}
	}
	return nil
}

// abort sends faults to the parent and to all children, and returns the error of the call.
func (c *creation) abort(fs Faults) error {
	m := faultMessage(Abort, fs)
	if top := len(c.levels) - 1; c.levels[top].SelfIndex > 0 && c.commByLevel[top] != nil {
		up, _ := c.parent()
		c.commByLevel[top].Send(up, m)
	}
	c.below(0, m)
	return c.error(fs)
}

// verdict waits for the verdict, unless this process gives it, and sends it to the children.
func (c *creation) verdict(t *Table) (*Table, error) {
	top := len(c.levels) - 1
	m, fs := newMessage(Commit, nil), Faults(nil)
	if c.levels[top].SelfIndex > 0 {
		up, child := c.parent()
		c.commByLevel[top].Send(up, newMessage(Confirm, nil))
		c.hasConfirmed = true
		m, fs = c.receive(top, up, child, committing, Commit)
	}
	if m == nil {
		m = faultMessage(Lost, fs)
	}
	c.below(0, m)
	if len(fs) == 0 {
		return t, nil
	}
	err := c.error(fs)
	if m.kind() == Lost {
		c.port.Refuse(t.ID(), err)
	}
	return nil, err
}
