package pmi1test

import (
	"fmt"
	"net"
	"strings"
)

// reply returns the right answer to a request; known is false for one that no server knows.
func (s *Server) reply(conn net.Conn, rank *int, cmd string, f map[string]string) (text string, known bool) {
	switch cmd {
	case "initack":
		*rank = number(f["pmiid"])
		first := "cmd=initack\n"
		if s.o.Style == HydraNew {
			first = fmt.Sprintf("cmd=initack rc=0 rank=%d size=%d appnum=0 debug=0\n", *rank, s.o.Size)
		}
		return fmt.Sprintf("%scmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n", first, s.o.Size, *rank), true
	case "init":
		sub := 1
		if s.o.Style == HydraNew {
			sub = 2
		}
		return s.say("response_to_init", 0, fmt.Sprintf("pmi_version=1 pmi_subversion=%d", sub)), true
	case "get_maxes":
		return s.say("maxes", 0, "kvsname_max=256 keylen_max=64 vallen_max=1024"), true
	case "get_my_kvsname":
		return s.say("my_kvsname", 0, "kvsname="+s.o.KVSName), true
	case "put":
		s.put[f["key"]] = f["value"]
		return s.say("put_result", 0, ""), true
	case "get":
		if v, ok := s.stored[f["key"]]; ok {
			return s.say("get_result", 0, "value="+v), true
		}
		if s.o.Style == Hydra402 {
			return s.say("get_result", -1, "value=unknown"), true
		}
		return s.say("get_result", 1, ""), true
	case "barrier_in":
		return s.barrier(conn, f["group"]), true
	case "publish_name", "lookup_name", "unpublish_name":
		return s.name(cmd, f["service"], f["port"]), true
	case "finalize":
		return s.say("finalize_ack", 0, ""), true
	case "abort":
		s.aborted = append(s.aborted, number(f["exitcode"]))
		return "", true
	}
	return "", false
}

// say puts an answer together in the server's style.
func (s *Server) say(cmd string, rc int, rest string) string {
	if rest != "" {
		rest = " " + rest
	}
	switch {
	case s.o.Style == HydraNew && cmd == "barrier_out":
		return fmt.Sprintf("cmd=%s%s\n", cmd, rest)
	case s.o.Style != Hydra402:
		return fmt.Sprintf("cmd=%s rc=%d%s\n", cmd, rc, rest)
	case rc == 0 && (cmd == "maxes" || cmd == "my_kvsname" || cmd == "finalize_ack" || cmd == "barrier_out"):
		return fmt.Sprintf("cmd=%s%s\n", cmd, rest)
	}
	return fmt.Sprintf("cmd=%s%s rc=%d\n", cmd, rest, rc)
}

// name serves the name service.
func (s *Server) name(cmd, service, port string) string {
	there, published := s.names[service]
	ok := published
	rest := ""
	switch cmd {
	case "publish_name":
		if ok = !published || s.o.Style == Slurm; ok {
			s.names[service] = port
		}
	case "unpublish_name":
		delete(s.names, service)
		ok = ok || s.o.Style == Slurm
	case "lookup_name":
		if ok {
			rest = " port=" + there
		}
	}
	reply := strings.TrimSuffix(cmd, "_name") + "_result"
	if s.o.Style == Slurm {
		info := map[bool]string{true: "ok", false: "fail"}[ok]
		return fmt.Sprintf("cmd=%s info=%s%s\n", reply, info, rest)
	}
	if ok {
		return s.say(reply, 0, strings.TrimSpace(rest+" info=ok"))
	}
	return s.say(reply, 1, "")
}

// barrier answers all of them when the last one comes, and nobody before.
func (s *Server) barrier(conn net.Conn, group string) string {
	members, tag, tagged := strings.Cut(group, ":")
	if s.o.Style != HydraNew {
		group, tagged = "", false
	}
	size := s.o.Size
	if group != "" && members != "WORLD" && members != "NODE" {
		size = strings.Count(members, ",") + 1
	}
	s.waiting[group] = append(s.waiting[group], conn)
	if len(s.waiting[group]) < size {
		return ""
	}
	rest := ""
	if s.o.Style == HydraNew {
		rest = "tag=0"
		if tagged {
			rest = "tag=" + tag
		}
	}
	text := s.say("barrier_out", 0, rest)
	for _, other := range s.waiting[group] {
		if other != conn {
			other.Write([]byte(text)) // likewise
		}
	}
	delete(s.waiting, group)
	for k, v := range s.put {
		s.stored[k] = v
	}
	clear(s.put)
	return text
}
