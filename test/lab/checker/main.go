// Checks histories of `npm run lab -- freed --history FILE` with Porcupine: `go run . FILE`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// The lock of one user: the token of its holder, 0 while it is free, and the greatest token so far.
type state struct{ holder, greatest int64 }

type operation struct {
	f     string
	user  string
	token int64
}

// A grant has a token above all before it, and finds the lock free. Only its holder ends it.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		users := map[string][]porcupine.Operation{}
		for _, each := range history {
			user := each.Input.(operation).user
			users[user] = append(users[user], each)
		}
		var parts [][]porcupine.Operation
		for _, part := range users {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return state{} },
	Step: func(before, input, _ interface{}) (bool, interface{}) {
		now, op := before.(state), input.(operation)
		if op.f == "acquire" {
			return now.holder == 0 && op.token > now.greatest, state{op.token, op.token}
		}
		return now.holder == op.token, state{0, now.greatest}
	},
}

var line = regexp.MustCompile(
	`:time (\d+), :process (\d+), :type :(\w+), :f :(\w+), :value \["(.*)" (\d+|nil)\]`)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	var history []porcupine.Operation
	open := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		found := line.FindStringSubmatch(lines.Text())
		if found == nil {
			panic("not a line of a history: " + lines.Text())
		}
		at, _ := strconv.ParseInt(found[1], 10, 64)
		token, _ := strconv.ParseInt(found[6], 10, 64)
		process, _ := strconv.Atoi(found[2])
		key, op := found[2]+found[4], operation{found[4], found[5], token}
		switch found[3] {
		case "invoke":
			open[key] = len(history)
			// Until it completes, it may take effect at any later time.
			history = append(history, porcupine.Operation{ClientId: process, Input: op, Call: at, Return: 1 << 62})
		case "ok":
			history[open[key]].Input = op
			history[open[key]].Return = at
		}
	}
	result := porcupine.CheckOperationsTimeout(model, history, 0)
	fmt.Printf("%s: %d operations, %s\n", os.Args[1], len(history), result)
	if result != porcupine.Ok {
		os.Exit(1)
	}
}
