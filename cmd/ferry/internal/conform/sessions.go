package conform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/mpi"
)

func sessionCases() []Case {
	all := []Case{
		of("session/several at once, in any order", "11.3", 1, (*env).severalSessions),
		of("session/thread levels", "11.6", 1, (*env).threadLevels),
		of("session/process sets", "11.3.2", 1, (*env).processSets),
		of("session/set of the node roots", "11.3.2", 1, (*env).nodeRoots),
		of("session/communicators of different sessions are apart", "11.3", 1, (*env).isolation),
		of("session/opening is local", "11.3.1", 2, (*env).localOpen),
		of("session/communicator from a group", "11.3.4", 1, (*env).fromGroup),
		of("session/the same tag back to back", "11.3.4", 1, (*env).backToBack),
		of("session/concurrent creations under different tags", "11.3.4", 1, (*env).concurrentCreations),
	}
	for i := range all {
		all[i].IsOfProcesses = true
	}
	return all
}

// open opens a session, which the case closes.
func (e *env) open(opts ...mpi.SessionOption) *mpi.Session {
	return need(mpi.OpenSession(e.ctx, opts...))(e)
}

// group is a process set of a session.
func (e *env) group(s *mpi.Session, name string) *mpi.Group { return need(s.Group(e.ctx, name))(e) }

func (e *env) fromTag(g *mpi.Group, tag string) *mpi.Comm {
	return need(mpi.CommFromGroup(e.ctx, g, tag))(e)
}

// severalSessions opens several, closes them in another order, and does it again.
func (e *env) severalSessions() {
	for range 2 {
		var sessions [4]*mpi.Session
		var comms [4]*mpi.Comm
		for i := range sessions {
			sessions[i] = e.open()
			comms[i] = e.fromTag(e.group(sessions[i], "mpi://WORLD"), "conform.several")
		}
		for _, i := range []int{2, 0, 3, 1} {
			e.works(comms[i])
			e.Check(sessions[i].Close())
		}
	}
}

func (e *env) threadLevels() {
	for _, level := range []mpi.ThreadLevel{mpi.ThreadSingle, mpi.ThreadFunneled, mpi.ThreadSerialized, mpi.ThreadMultiple} {
		s := e.open(mpi.WithThreadLevel(level))
		e.must(s.ThreadLevel() == level, "level %d, asked for %d", s.ThreadLevel(), level)
		e.Check(s.Close())
	}
}

// nodeRoots checks the process of the lowest rank of each node, if the launcher has a map of the nodes.
func (e *env) nodeRoots() {
	names := need(e.session.Psets(e.ctx))(e)
	if !slices.Contains(names, "mpix://ROOTS") {
		_, err := e.session.Group(e.ctx, "mpix://ROOTS")
		e.Is("no map of the nodes", err, mpi.ErrPset)
		return
	}
	world, node, roots := e.group(e.session, "mpi://WORLD"), e.group(e.session, "mpix://SHARED"), e.group(e.session, "mpix://ROOTS")
	lead := node.Intersection(roots)
	e.must(lead.Size() == 1 && lead.Compare(e.incl(node, 0)) == mpi.Identical, "%v of this node are roots, want %v", lead.Members(), node.Members()[0])
	e.must(world.Intersection(roots).Compare(roots) == mpi.Identical, "the roots %v are not in the order of the ranks", roots.Members())
	if roots.Rank() != mpi.Undefined {
		e.works(e.fromTag(roots, "conform.roots"))
	}
	e.works(e.fromTag(node, "conform.node"))
}

func (e *env) processSets() {
	s := e.session
	names, err := s.Psets(e.ctx)
	e.must(err == nil && len(names) >= 2 && names[0] == "mpi://WORLD" && names[1] == "mpi://SELF", "process sets %q, %v", names, err)
	for i, name := range names {
		info := need(s.PsetInfo(e.ctx, name))(e)
		g := e.group(s, strings.ToUpper(name)) // names have no case
		e.must(info.Size == g.Size(), "%s: size %d and %d", name, info.Size, g.Size())
		e.must(info.Included == (g.Rank() != mpi.Undefined), "%s: included %t, rank %d", name, info.Included, g.Rank())
		e.must(i > 1 || info.Included, "%s does not include the caller", name)
		e.must(slices.Index(names, name) == i, "%s twice", name)
	}
	c := e.fromTag(e.group(s, "mpi://SELF"), "conform.self")
	e.must(c.Size() == 1 && c.Rank() == 0, "SELF: rank %d of %d", c.Rank(), c.Size())
	e.works(c)
	_, unknown := s.Group(e.ctx, "mpi://WOLRD")
	e.Is("an unknown set", unknown, mpi.ErrPset)
}

// isolation sends messages with equal ranks and tags on communicators of different
// sessions with equal groups and tags.
func (e *env) isolation() {
	s1, s2 := e.open(), e.open()
	c1 := e.fromTag(e.group(s1, "mpi://WORLD"), "conform.isolated")
	c2 := e.fromTag(e.group(s2, "mpi://WORLD"), "conform.isolated")
	e.must(c1.ID() != c2.ID(), "equal ids")
	e.must(c1.Compare(c2) == mpi.Congruent, "compare: %v", c1.Compare(c2))
	e.Check(c1.Bsend(e.ctx, pattern(1, c1.Rank(), 1), e.rightRank, 0), c2.Bsend(e.ctx, pattern(1, c2.Rank(), 2), e.rightRank, 0))
	e.recv(c2, mpi.AnySource, mpi.AnyTag, 0, pattern(1, e.leftRank, 2))
	e.recv(c1, mpi.AnySource, mpi.AnyTag, 0, pattern(1, e.leftRank, 1))
	// One goes, the other stays.
	e.Check(c1.Close(), s1.Close())
	e.works(c2)
	e.Check(s2.Close())
}

// localOpen opens and closes in rank 0, while the others wait for its message.
func (e *env) localOpen() {
	if e.c.Rank() != 0 {
		need(e.c.Recv(e.ctx, nil, 0, 0))(e)
		return
	}
	s := e.open()
	g := e.group(s, "mpi://WORLD")
	e.must(g.Size() == e.c.Size(), "WORLD has %d members", g.Size())
	e.Check(s.Close())
	for to := 1; to < e.c.Size(); to++ {
		e.Check(e.c.Send(e.ctx, nil, to, 0))
	}
}

func (e *env) fromGroup() {
	all := e.group(e.session, "mpi://WORLD")
	reversed := upTo(all.Size())
	slices.Reverse(reversed)
	c := e.fromTag(e.incl(all, reversed...), "conform.reversed")
	e.must(c.Rank() == all.Size()-1-all.Rank(), "rank %d", c.Rank())
	e.works(c)
	if all.Size() == 1 {
		return
	}
	others := need(all.Excl(all.Rank()))(e)
	_, err := mpi.CommFromGroup(e.ctx, others, "conform.outside")
	e.Is("a group without the caller", err, mpi.ErrGroup)
}

func (e *env) backToBack() {
	ids := map[mpi.CommID]bool{}
	for range 20 {
		c := e.fromTag(e.c.Group(), "conform.same")
		e.must(!ids[c.ID()], "an id comes again")
		ids[c.ID()] = true
		e.works(c)
	}
}

func (e *env) concurrentCreations() {
	e.Each(6, func(i int) {
		for range 3 {
			e.works(e.fromTag(e.c.Group(), fmt.Sprint("conform.", i)))
		}
	})
}
