package simtest

import (
	"errors"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// engine executes scripts. It has those functions of Redis that the script of a bucket
// uses.
type engine struct {
	state  *lua.LState
	server *server
}

type script = *lua.LFunction

func newEngine(s *server) *engine {
	e := &engine{lua.NewState(lua.Options{SkipOpenLibs: true}), s}
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		e.state.Push(e.state.NewFunction(open))
		e.state.Call(0, 0)
	}
	e.state.SetGlobal("redis", e.state.SetFuncs(e.state.NewTable(), map[string]lua.LGFunction{
		"call":        e.call,
		"pcall":       e.call,
		"error_reply": e.errorReply,
	}))
	return e
}

func (e *engine) compile(text string) (script, error) { return e.state.LoadString(text) }

// run returns the script's answer, or the error that it returns.
func (e *engine) run(f script, key string, args []string) (string, error) {
	e.state.SetGlobal("KEYS", e.list(key))
	e.state.SetGlobal("ARGV", e.list(args...))
	e.state.Push(f)
	if err := e.state.PCall(0, 1, nil); err != nil {
		return "", err
	}
	defer e.state.Pop(1)
	if table, ok := e.state.Get(-1).(*lua.LTable); ok {
		return "", errors.New(table.RawGetString("err").String())
	}
	return e.state.Get(-1).String(), nil
}

func (e *engine) list(words ...string) *lua.LTable {
	list := e.state.CreateTable(len(words), 0)
	for _, word := range words {
		list.Append(lua.LString(word))
	}
	return list
}

// call is redis.call: TIME, GET KEY, SET KEY VALUE PX MILLISECONDS, DEL KEY.
func (e *engine) call(l *lua.LState) int {
	switch command := l.CheckString(1); strings.ToUpper(command) {
	case "TIME":
		l.Push(e.list(e.server.time()))
	case "GET":
		if value := e.server.get(l.CheckString(2)); value != "" {
			l.Push(lua.LString(value))
		} else {
			l.Push(lua.LFalse)
		}
	case "SET":
		ttl, err := strconv.ParseInt(l.CheckString(5), 10, 64)
		if err != nil || ttl <= 0 || l.CheckString(4) != "PX" {
			l.RaiseError("ERR invalid expire time in 'set' command")
		}
		e.server.set(l.CheckString(2), l.CheckString(3), ttl)
		l.Push(l.NewTable())
	case "DEL":
		delete(e.server.data, l.CheckString(2))
		l.Push(lua.LNumber(1))
	default:
		l.RaiseError("ERR unknown command '%s'", command)
	}
	return 1
}

func (e *engine) errorReply(l *lua.LState) int {
	reply := l.NewTable()
	reply.RawSetString("err", lua.LString(l.CheckString(1)))
	l.Push(reply)
	return 1
}
