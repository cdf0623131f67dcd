package pmi1test

import (
	"fmt"
	"net"
	"strings"
)

// reply returns the correct answer to a request. known is false for an unknown command.
func (s *Server) reply(conn net.Conn, rank *int, cmd string, f map[string]string) (text string, known bool) {
	switch cmd {
	case "initack":
		*rank = readNumber(f["pmiid"])
		first := "cmd=initack\n"
		if s.options.Style == HydraNew {
			first = fmt.Sprintf("cmd=initack rc=0 rank=%d size=%d appnum=0 debug=0\n", *rank, s.options.Size)
		}
		return fmt.Sprintf("%scmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n", first, s.options.Size, *rank), true
	case "init":
		sub := 1
		if s.options.Style == HydraNew {
			sub = 2
		}
		return s.formatAnswer("response_to_init", 0, fmt.Sprintf("pmi_version=1 pmi_subversion=%d", sub)), true
	case "get_maxes":
		return s.formatAnswer("maxes", 0, "kvsname_max=256 keylen_max=64 vallen_max=1024"), true
	case "get_my_kvsname":
		return s.formatAnswer("my_kvsname", 0, "kvsname="+s.options.KVSName), true
	case "put":
		s.pendingValues[f["key"]] = f["value"]
		return s.formatAnswer("put_result", 0, ""), true
	case "get":
		if v, ok := s.values[f["key"]]; ok {
			return s.formatAnswer("get_result", 0, "value="+v), true
		}
		if s.options.Style == Hydra402 {
			return s.formatAnswer("get_result", -1, "value=unknown"), true
		}
		return s.formatAnswer("get_result", 1, ""), true
	case "barrier_in":
		return s.barrier(conn, f["group"]), true
	case "publish_name", "lookup_name", "unpublish_name":
		return s.serveName(cmd, f["service"], f["port"]), true
	case "spawn":
		return s.spawn(f), true
	case "finalize":
		return s.formatAnswer("finalize_ack", 0, ""), true
	case "abort":
		s.abortStatuses = append(s.abortStatuses, readNumber(f["exitcode"]))
		return "", true
	}
	return "", false
}

// formatAnswer formats an answer in the server's style.
func (s *Server) formatAnswer(cmd string, rc int, rest string) string {
	if rest != "" {
		rest = " " + rest
	}
	switch {
	case s.options.Style == HydraNew && cmd == "barrier_out":
		return fmt.Sprintf("cmd=%s%s\n", cmd, rest)
	case s.options.Style != Hydra402:
		return fmt.Sprintf("cmd=%s rc=%d%s\n", cmd, rc, rest)
	case rc == 0 && (cmd == "maxes" || cmd == "my_kvsname" || cmd == "finalize_ack" || cmd == "barrier_out"):
		return fmt.Sprintf("cmd=%s%s\n", cmd, rest)
	}
	return fmt.Sprintf("cmd=%s%s rc=%d\n", cmd, rest, rc)
}

// spawn starts a job.
func (s *Server) spawn(f map[string]string) string {
	if err := s.startJob(f); err != nil {
		return s.formatAnswer("spawn_result", 1, "msg=no_port")
	}
	if s.options.Style == Slurm {
		return s.formatAnswer("spawn_result", 0, fmt.Sprintf("jobid=%s-%d", s.options.KVSName, len(s.spawned)))
	}
	return s.formatAnswer("spawn_result", 0, "")
}

// serveName serves the name service.
func (s *Server) serveName(cmd, service, port string) string {
	s.names.Lock()
	defer s.names.Unlock()
	there, published := s.names.ports[service]
	ok := published
	rest := ""
	switch cmd {
	case "publish_name":
		if ok = !published || s.options.Style == Slurm; ok {
			s.names.ports[service] = port
		}
	case "unpublish_name":
		delete(s.names.ports, service)
		ok = ok || s.options.Style == Slurm
	case "lookup_name":
		if ok {
			rest = " port=" + there
		}
	}
	reply := strings.TrimSuffix(cmd, "_name") + "_result"
	if s.options.Style == Slurm {
		info := map[bool]string{true: "ok", false: "fail"}[ok]
		return fmt.Sprintf("cmd=%s info=%s%s\n", reply, info, rest)
	}
	if ok {
		return s.formatAnswer(reply, 0, strings.TrimSpace(rest+" info=ok"))
	}
	return s.formatAnswer(reply, 1, "")
}

// barrier answers all members when the last one arrives.
func (s *Server) barrier(conn net.Conn, group string) string {
	members, tag, tagged := strings.Cut(group, ":")
	if s.options.Style != HydraNew {
		group, tagged = "", false
	}
	size := s.options.Size
	if group != "" && members != "WORLD" && members != "NODE" {
		size = strings.Count(members, ",") + 1
	}
	s.barrierConns[group] = append(s.barrierConns[group], conn)
	if len(s.barrierConns[group]) < size {
		return ""
	}
	rest := ""
	if s.options.Style == HydraNew {
		rest = "tag=0"
		if tagged {
			rest = "tag=" + tag
		}
	}
	text := s.formatAnswer("barrier_out", 0, rest)
	for _, other := range s.barrierConns[group] {
		if other != conn {
			other.Write([]byte(text)) // The member may have closed.
		}
	}
	delete(s.barrierConns, group)
	for k, v := range s.pendingValues {
		s.values[k] = v
	}
	clear(s.pendingValues)
	return text
}
