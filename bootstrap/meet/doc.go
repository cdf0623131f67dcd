// Package meet keeps the whole contract of bootstrap.Client over connections
// among the members themselves. Of whatever started the processes it needs a
// Launcher: who am I, and an address book.
//
// Every process with an open client listens: on a Unix socket for those of its
// node, on TCP for others. It publishes where, with a key that whoever connects
// must know (entry.go, handshake.go). Opening a session sends nothing to anybody.
// A pair of processes connects when one of them first wants something of the other
// (reach.go), and stays so.
//
// The first member of a group leads its fences and constructs: the others send it
// their part, those of another node through the lowest of them (relay.go), and it answers
// all. A construct is a fence that carries payloads and
// draws an id; there is one mechanism (bootstrap/internal/join). A Get is a request
// to the process that puts, and waits there.
//
// A connection that breaks without a goodbye is a death, once connecting again is
// refused. Such news goes over all connections, and each process passes on what it
// had not heard (news.go). Each keeps a connection to the first living member of
// each group that it was in, so that the news finds its way.
//
// A process may have to leave its launcher when it closes its client, and can use the address
// book no more. Clients that it opens later reach the other processes without (learn.go, node.go).
//
// A process that has closed its client still listens, but nobody answers until it
// opens one again: it is absent, and who wants something of it waits. Its place (its
// sockets, key, and what it has put) lives as long as the process.
package meet
