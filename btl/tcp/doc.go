// Package tcp is the BTL between processes of any hosts: several TCP connections to a
// peer, beneath one path that keeps its order and loses nothing when they break.
// docs/wire.md has the bytes, docs/security.md what the handshake is worth.
//
// # The life of a frame
//
// Reserve gives room in the path's window: memory that grows with what is under way, up to
// btl.tcp.window for each peer. Commit gives the frame the next number of its path. It stays
// in the window until the peer has confirmed it. Frames that are built here lie in the
// window; the payload of a gathered frame goes from its owner's slice, which is lent until
// the frame is confirmed, because it may have to go again.
//
// The first small frame since the protocol polled last leaves at once, those behind it
// together with the next poll. Each goes out on the link that carries least. The receiver
// hands up the frame whose number is due; a link whose next frame is not is left alone, so
// that frames wait in the system and nothing is copied for order. Only when the due one
// does not come for a while, as when it went by a link that was lost, frames are put aside
// in memory, at most a window.
//
// The receiver confirms all that it has up to a number: with frames that go the other way;
// by itself after an eighth of the window, after 10 ms, or at once when the sender asks:
// one that waits for room, for its payloads, or to be idle.
//
// # The life of a link
//
// The first link is made when a path is opened, by whoever opens it, to one of the addresses
// of the peer's card after another; further ones when much is under way. If both ends call
// for one link at a time, that of the lower nonce stays. What a lost link had not confirmed
// goes by the others, in order, before everything else. New connections are tried with
// pauses that grow. Without any link the path is lost when nothing was heard of the peer's
// host for btl.tcp.retry_timeout, or when its host refuses again and again: nobody listens
// there. Whether a host is heard of says the system (TCP_INFO): a peer that is stopped, or
// does not read, is not lost. New connections alone are no progress: a path whose pending
// frames stay unconfirmed for btl.tcp.retry_timeout over reconnects fails too (stall.go).
//
// Both ends of a path have a random number for it. A process that has lost a path, or opened
// its session again, has another one, and is never given a frame of before.
//
// # Who is let in
//
// Before any frame both ends of a connection prove that they know the key of the acceptor's
// card, by HMACs over fresh random bytes of both, the two processes, and what they want.
// A connection that has not proved anything takes less than 1 KiB (with TLS, some 16), for
// 5 s, and of 256 the oldest goes.
//
// # Waiting
//
// All sockets are raw descriptors that don't block, behind one epoll descriptor. A rank that
// waits for one peer reads that peer's socket by itself (PeerSource); the others are asked
// for every so many polls, the fewer the longer nothing comes. A link has no goroutine.
//
// With TLS a link is read and written in the same way: its bytes go through crypto/tls
// (tunnel.go). A goroutine has the connection only while TLS begins.
//
// The state of a path is pure (path.go), as are the parts of the handshake: scripts and
// models test them.
package tcp
