package sets

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

const (
	// MaxSets is the number of sets that may exist at a time.
	MaxSets = wire.MaxSizes
	// maxNameBytes limits the names of all sets together, because the list of them is one message.
	maxNameBytes = 8 << 20
	// maxMembers limits the members of all sets together. A member takes 4 to 8 bytes.
	maxMembers = 1 << 24
	// maxTombstones is the number of deleted sets that errors describe.
	maxTombstones = 1 << 10
)

// Creators of sets, and requesters of changes, that are not processes.
const (
	launcher = -1 // The command line of the job.
	user     = -2 // A user's request while the job runs.
)

// A set is immutable but for its data.
type set[W join.Waiter] struct {
	name string
	// In the order of its group.
	ranks []uint32
	// Ascending. nil before the first use.
	sorted []uint32
	serial int
	// Rank, launcher or user.
	creator int64

	// Starting change that creates it, nil once that is open.
	hiddenBy *change[W]
	// Unfinished change with it as associated set or delta.
	change *change[W]
	// Unfinished changes that use it, also as main set.
	userCount int
	// A finished change had it as a delta.
	isFinished bool
	// Set that finished changes have made of it.
	successor successorSet

	// Members that have ended, but not left.
	endedRanks []uint32
	// Value of Table.endCount when endedRanks was computed.
	endedAtCount int
	// Set of endedRanks that queries returned.
	failedSet *set[W]
	// Number of ended members that a process has received, by rank.
	failedQueries map[uint32]int

	queries []pendingQuery[W]
	data    join.ValueStore[W]
}

// successorSet identifies the set that finished changes have made of another one. It does not keep a deleted set.
type successorSet struct {
	name string
	// 0 if there is none.
	serial int
}

// has reports whether a process is a member.
func (s *set[W]) has(rank uint32) bool {
	if s.sorted == nil {
		s.sorted = s.ranks
		if !slices.IsSorted(s.ranks) {
			s.sorted = slices.Sorted(slices.Values(s.ranks))
		}
	}
	_, ok := slices.BinarySearch(s.sorted, rank)
	return ok
}

// A tombstone describes a deleted set.
type tombstone struct {
	// Rank of the process that deleted it.
	deletedBy int64
	// Error of its change if that was undone.
	failure *wire.FailureBody
}

// tombstones are the latest deleted sets, by key.
type tombstones struct {
	byKey map[string]tombstone
	// The oldest first.
	keys []string
}

func (d *tombstones) add(key string, t tombstone) {
	if d.byKey == nil {
		d.byKey = map[string]tombstone{}
	}
	if _, ok := d.byKey[key]; !ok {
		d.keys = append(d.keys, key)
	}
	if d.byKey[key] = t; len(d.keys) > maxTombstones {
		d.remove(d.keys[0])
	}
}

// remove drops a key, which a new set may have.
func (d *tombstones) remove(key string) {
	if _, ok := d.byKey[key]; ok {
		delete(d.byKey, key)
		i := slices.Index(d.keys, key)
		d.keys = slices.Delete(d.keys, i, i+1)
	}
}

func failf(code wire.Code, format string, args ...any) *wire.FailureBody {
	return &wire.FailureBody{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Define adds a set of the launcher, which the caller has checked, unless its name is taken.
func (t *Table[W]) Define(name string, ranks []uint32) {
	if _, isTaken := t.sets[bootstrap.PsetKey(name)]; !isTaken {
		t.create(name, ranks, launcher)
	}
}

// create adds a set. The caller has checked name, and the room for it.
func (t *Table[W]) create(name string, ranks []uint32, creator int64) *set[W] {
	t.lastSerial++
	s := &set[W]{name: name, ranks: ranks, serial: t.lastSerial, creator: creator}
	key := bootstrap.PsetKey(name)
	t.sets[key] = s
	t.setsByAge = append(t.setsByAge, s)
	t.tombstones.remove(key)
	t.nameBytes += len(name)
	t.memberCount += len(ranks)
	return s
}

// makeName returns the name of the next set, if it is of a kind. No set had it before, since names of ferry://
// are reserved.
func (t *Table[W]) makeName(kind string) string {
	return fmt.Sprintf("ferry://%s/%d", kind, t.lastSerial+1)
}

// checkRoom refuses n more sets with some members together, one of them with the given name, over the limits.
func (t *Table[W]) checkRoom(n, members int, name string) *wire.FailureBody {
	const ownName = 32 // Bytes of one of makeName's.
	switch {
	case len(t.sets)+n > MaxSets:
		return failf(wire.CodeLimit, "%d process sets exist, and the limit is %d: delete those that are not used (DeletePset)", len(t.sets), MaxSets)
	case t.nameBytes+len(name)+n*ownName > maxNameBytes:
		return failf(wire.CodeLimit, "the names of all process sets have %d bytes, and the limit is %d: choose shorter ones", t.nameBytes, maxNameBytes)
	case t.memberCount+members > maxMembers:
		return failf(wire.CodeLimit, "all process sets together have %d members, and the limit is %d: delete those that are not used (DeletePset)", t.memberCount, maxMembers)
	}
	return nil
}

// checkName refuses a name for a new set.
func (t *Table[W]) checkName(name string) *wire.FailureBody {
	if name == "" {
		return nil
	}
	if bootstrap.IsReserved(name) {
		return failf(wire.CodePset, "%q is reserved: choose a name without mpi://, mpix:// and ferry://", name)
	}
	if s, taken := t.sets[bootstrap.PsetKey(name)]; taken {
		return failf(wire.CodePset, "the name %q is taken: choose another one", s.name)
	}
	return nil
}

// find returns the set that a process means by a name. A set whose change is still
// starting exists for the joining processes only.
func (t *Table[W]) find(rank uint32, name string) (*set[W], *wire.FailureBody) {
	p := t.procs[rank]
	switch key := bootstrap.PsetKey(name); {
	case p == nil:
		return nil, failf(wire.CodeRank, "rank %d has ended", rank)
	case strings.EqualFold(name, bootstrap.PsetWorld):
		return p.world, nil
	case strings.EqualFold(name, bootstrap.PsetSelf):
		if p.self == nil {
			p.self = &set[W]{name: bootstrap.PsetSelf, ranks: []uint32{rank}, creator: launcher}
		}
		return p.self, nil
	case t.isVisible(rank, t.sets[key]):
		return t.sets[key], nil
	default:
		return nil, t.unknownSetFailure(rank, name, key)
	}
}

func (t *Table[W]) isVisible(rank uint32, s *set[W]) bool {
	return s != nil && (s.hiddenBy == nil || s.hiddenBy.joins(rank))
}

// unknownSetFailure returns the failure for a name without a set.
func (t *Table[W]) unknownSetFailure(rank uint32, name, key string) *wire.FailureBody {
	if d, ok := t.tombstones.byKey[key]; ok && d.failure != nil {
		return failf(wire.CodePset, "%q is deleted: its change was undone", name)
	} else if ok {
		return failf(wire.CodePset, "%q is deleted: rank %d deleted it", name, d.deletedBy)
	}
	const longest = 128 // The distance of names takes time, and the caller's lock.
	all := append(builtin, t.names(rank)...)
	text := fmt.Sprintf("%q", name)
	if len(name) <= longest {
		text += "; the nearest is " + nearest(key, all)
	}
	const listed = 16
	text += "; there are " + strings.Join(all[:min(len(all), listed)], ", ")
	if more := len(all) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &wire.FailureBody{Code: wire.CodePset, Text: text}
}

// nearest returns the name with the smallest distance from a key. Among many names, it compares
// those of a similar length.
func nearest(key string, names []string) string {
	const most, similar = 64, 2
	var keys []string
	nameOf := map[string]string{}
	for _, isSimilar := range []bool{true, false} {
		for _, name := range names {
			if distance := len(name) - len(key); len(keys) < most && (distance >= -similar && distance <= similar) == isSimilar {
				k := bootstrap.PsetKey(name)
				keys, nameOf[k] = append(keys, k), name
			}
		}
	}
	return nameOf[framework.Nearest(key, keys)]
}

// builtin are the sets that BuiltinPset makes. It is not changed.
var builtin = slices.Clip(bootstrap.BuiltinPsets())

// names returns those of the sets that a process sees, in the order of their creation.
func (t *Table[W]) names(rank uint32) []string {
	names := make([]string, 0, len(t.setsByAge))
	for _, s := range t.setsByAge {
		if t.isVisible(rank, s) {
			names = append(names, s.name)
		}
	}
	return names
}

// Psets answers a list of the sets but the built-in ones.
func (t *Table[W]) Psets(w W, rank uint32) { reply(w, wire.NamesBody{Names: t.names(rank)}) }

// Pset answers the members of a set.
func (t *Table[W]) Pset(w W, rank uint32, name string) {
	s, f := t.find(rank, name)
	if f != nil {
		join.Fail(w, *f)
		return
	}
	reply(w, wire.PsetBody{Name: s.name, Ranks: s.ranks, Dynamic: s.creator != launcher})
}

// Delete deletes a set. A set that is the mpi://WORLD of a process that has not ended loses its
// name only. This does not affect calls on mpi://WORLD, and calls that wait for the set.
func (t *Table[W]) Delete(w W, rank uint32, name string) {
	if isBuiltin(name) {
		join.Fail(w, *failf(wire.CodePset, "%q is built in, and can't be deleted", name))
		return
	}
	s, f := t.find(rank, name)
	if f == nil {
		f = t.checkDelete(s, rank)
	}
	if f != nil {
		join.Fail(w, *f)
		return
	}
	if d := (tombstone{deletedBy: int64(rank)}); t.isWorld(s) {
		t.removeName(s, d)
	} else {
		t.remove(s, d, *failf(wire.CodePset, "rank %d deleted the set", rank))
	}
	t.report(Event{Kind: SetDeleted, Operands: []string{s.name}, Requester: rank})
	reply(w, wire.Empty{})
}

// checkDelete refuses to delete a set in use, or for a process without the right.
func (t *Table[W]) checkDelete(s *set[W], rank uint32) *wire.FailureBody {
	switch {
	case s.creator == launcher:
		return failf(wire.CodePset, "%q exists since the start of the job, and can't be deleted", s.name)
	case s.userCount > 0:
		return failf(wire.CodePending, "the change %q uses the set: finish it first", t.userOf(s).delta(rank))
	case s.creator == int64(rank):
		return nil
	case s.creator >= 0 && t.procs[uint32(s.creator)] != nil:
		return failf(wire.CodePset, "rank %d created the set, and deletes it while it runs", s.creator)
	case !s.has(rank) && slices.ContainsFunc(s.ranks, t.isPresent):
		return failf(wire.CodePset, "the creator of the set has ended: a member deletes it")
	}
	return nil
}

// userOf returns an unfinished change that uses a set.
func (t *Table[W]) userOf(s *set[W]) *change[W] {
	for c := range t.changes {
		if slices.Contains([]*set[W]{c.associated, c.leaving, c.joining, c.main}, s) {
			return c
		}
	}
	return nil
}

// isBuiltin reports whether a name is that of a set that each process has.
func isBuiltin(name string) bool {
	return slices.ContainsFunc(builtin, func(s string) bool { return strings.EqualFold(s, name) })
}

// isWorld reports whether a set is the mpi://WORLD of a process that has not ended.
func (t *Table[W]) isWorld(s *set[W]) bool {
	return slices.ContainsFunc(s.ranks, func(r uint32) bool { return t.procs[r] != nil && t.procs[r].world == s })
}

// isNamed reports whether a set is under its name.
func (t *Table[W]) isNamed(s *set[W]) bool { return t.sets[bootstrap.PsetKey(s.name)] == s }

// removeName removes a set from the names.
func (t *Table[W]) removeName(s *set[W], d tombstone) {
	key := bootstrap.PsetKey(s.name)
	delete(t.sets, key)
	if i, ok := slices.BinarySearchFunc(t.setsByAge, s.serial, func(s *set[W], serial int) int { return s.serial - serial }); ok {
		t.setsByAge = slices.Delete(t.setsByAge, i, i+1)
	}
	t.nameBytes -= len(s.name)
	t.memberCount -= len(s.ranks)
	t.tombstones.add(key, d)
}

// remove deletes a set with its data. f answers the calls that wait for the set.
func (t *Table[W]) remove(s *set[W], d tombstone, f wire.FailureBody) {
	if t.isNamed(s) {
		t.removeName(s, d)
	}
	t.dropSet(s, f)
}

// dropSet drops the data of a deleted set. f answers the calls that wait for the set.
func (t *Table[W]) dropSet(s *set[W], f wire.FailureBody) {
	queries := s.queries
	s.queries = nil
	delete(t.queriedSets, s)
	for _, q := range queries {
		join.Fail(q.waiter, f)
	}
	s.data.Fail(f)
	s.data = join.ValueStore[W]{}
	s.failedSet, s.failedQueries = nil, nil
}

// reply answers a call that has not waited, or whose withdrawal was cleared.
func reply[W join.Waiter](w W, body any) { w.Answer(wire.Reply, wire.EncodeBody(body)) }
