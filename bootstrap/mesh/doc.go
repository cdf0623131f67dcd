// Package mesh implements bootstrap.Client over connections among the members of a job, which is
// called the mesh bootstrap. From the launcher it needs a Launcher only, which is the identity of
// the process and an address book.
//
// Every process with an open client listens, on a Unix socket for processes of its node and on TCP
// for others. It publishes an entry with its addresses and a key that connecting processes must
// prove to have (entry.go, handshake.go). Opening a session sends nothing to other processes,
// except in added processes, which connect to rank 0 in the background. Two processes connect when
// one of them first needs the other (dial.go), and stay connected.
//
// The first member of a group coordinates its fences and constructs. The other members send it
// their joins, those of another node through their node leader (relay.go), and it answers all of
// them. A construct is a fence with payloads and a context id (bootstrap/internal/join). A Get is a
// request to the process that puts the value, and waits there.
//
// A connection that breaks without a goodbye is a death once a new connection is refused. Events
// are flooded over all connections (events.go). Each process keeps a connection to the coordinator
// of each group that it was in, so that events reach every process (coordinators.go).
//
// Rank 0 holds the process sets of the job, and makes its changes (set_table.go, set_calls.go). A
// launcher that is a Spawner starts processes for them, which become ranks of the same namespace
// (growth.go).
//
// A process may have to leave its launcher when it closes its client, and can then no longer use
// the address book. Its later clients reach the other processes without it (entry_lookup.go,
// node_sockets.go).
//
// A process without an open client still listens, but does not answer. It is absent, and requests
// to it wait. Its endpoint (sockets, key and values) lasts as long as the process (endpoint.go).
package mesh
