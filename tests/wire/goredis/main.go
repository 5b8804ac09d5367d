// Asks a server through go-redis, and prints what that makes of each answer: see test_other_clients.py.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: os.Args[1], Protocol: protocol, ClientName: "go"})
		c.Del(ctx, "s", "t", "p")
		say := func(what string, v interface{}, err error) { fmt.Printf("%d %s: %v %v\n", protocol, what, v, err) }
		p, err := c.Ping(ctx).Result()
		say("ping", p, err)
		for i := 1; i <= 5; i++ {
			id, err := c.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: fmt.Sprintf("%d-0", i), Values: map[string]interface{}{"n": i}}).Result()
			say("xadd", id, err)
		}
		id, err := c.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "1-0", Values: []string{"n", "1"}}).Result()
		say("xadd again", id, err)
		id, err = c.XAdd(ctx, &redis.XAddArgs{Stream: "none", NoMkStream: true, Values: []string{"n", "1"}}).Result()
		say("nomkstream", id, err)
		m, err := c.XRange(ctx, "s", "-", "+").Result()
		say("xrange", m, err)
		m, err = c.XRevRangeN(ctx, "s", "+", "(1-0", 2).Result()
		say("xrevrange", m, err)
		o, err := c.XGroupCreateMkStream(ctx, "s", "g", "0").Result()
		say("group", o, err)
		o, err = c.XGroupCreate(ctx, "s", "g", "0").Result()
		say("group again", o, err)
		r, err := c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "alice", Streams: []string{"s", ">"}, Count: 3, Block: 10 * time.Millisecond}).Result()
		say("xreadgroup", r, err)
		r, err = c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "none", Consumer: "alice", Streams: []string{"s", ">"}}).Result()
		say("xreadgroup none", r, err)
		n, err := c.XAck(ctx, "s", "g", "1-0").Result()
		say("xack", n, err)
		pe, err := c.XPending(ctx, "s", "g").Result()
		say("xpending", pe, err)
		px, err := c.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "s", Group: "g", Start: "-", End: "+", Count: 10}).Result()
		for i := range px {
			px[i].Idle = 0
		}
		say("xpending ext", px, err)
		a, next, err := c.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "bob", Start: "0", Count: 1}).Result()
		say("xautoclaim", a, err)
		say("next", next, nil)
		ids, next, err := c.XAutoClaimJustID(ctx, &redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "bob", Start: next, Count: 5}).Result()
		say("xautoclaim justid", ids, err)
		say("next", next, nil)
		m, err = c.XClaim(ctx, &redis.XClaimArgs{Stream: "s", Group: "g", Consumer: "carl", Messages: []string{"2-0"}}).Result()
		say("xclaim", m, err)
		is, err := c.XInfoStream(ctx, "s").Result()
		say("xinfo stream", *is, err)
		ig, err := c.XInfoGroups(ctx, "s").Result()
		say("xinfo groups", ig, err)
		ic, err := c.XInfoConsumers(ctx, "s", "g").Result()
		for i := range ic {
			ic[i].Idle = 0
			ic[i].Inactive = 0
		}
		say("xinfo consumers", ic, err)
		full, err := c.XInfoStreamFull(ctx, "s", 0).Result()
		if err == nil {
			say("xinfo full", []interface{}{full.Length, full.LastGeneratedID, full.EntriesAdded, full.Entries, len(full.Groups), full.Groups[0].PelCount, len(full.Groups[0].Consumers)}, err)
		} else {
			say("xinfo full", nil, err)
		}
		x, err := c.XInfoStream(ctx, "none").Result()
		say("xinfo none", x, err)
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := 0; i < 100; i++ {
				p.XAdd(ctx, &redis.XAddArgs{Stream: "p", ID: fmt.Sprintf("%d-1", i+1), Values: []string{"n", fmt.Sprint(i)}})
			}
			p.XAdd(ctx, &redis.XAddArgs{Stream: "p", ID: "1-1", Values: []string{"n", "x"}})
			p.XLen(ctx, "p")
			return nil
		})
		say("pipeline", cmds[99], err)
		say("pipeline", cmds[100], nil)
		say("pipeline", cmds[101], nil)
		cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.XAdd(ctx, &redis.XAddArgs{Stream: "t", ID: "1-1", Values: []string{"a", "b"}})
			p.XLen(ctx, "t")
			p.XTrimMaxLen(ctx, "p", 10)
			return nil
		})
		say("tx", cmds, err)
		err = c.Watch(ctx, func(tx *redis.Tx) error {
			c.XAdd(ctx, &redis.XAddArgs{Stream: "t", ID: "2-1", Values: []string{"a", "b"}})
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Del(ctx, "t"); return nil })
			return err
		}, "t")
		say("watch", nil, err)
		var wait sync.WaitGroup
		wait.Add(1)
		go func() {
			defer wait.Done()
			r, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{"t", "$"}, Block: 20 * time.Second}).Result()
			say("xread block", r, err)
		}()
		time.Sleep(300 * time.Millisecond)
		c.XAdd(ctx, &redis.XAddArgs{Stream: "t", ID: "9-1", Values: []string{"a", "b"}})
		wait.Wait()
		r, err = c.XRead(ctx, &redis.XReadArgs{Streams: []string{"t", "$"}, Block: 20 * time.Millisecond}).Result()
		say("xread time-out", r, err)
		k, _, err := c.ScanType(ctx, 0, "t*", 100, "stream").Result()
		say("scan", k, err)
		ty, err := c.Type(ctx, "s").Result()
		say("type", ty, err)
		name, err := c.ClientGetName(ctx).Result()
		say("name", name, err)
		e, err := c.Expire(ctx, "t", time.Hour).Result()
		say("expire", e, err)
		tt, err := c.TTL(ctx, "t").Result()
		say("ttl", tt, err)
		d, err := c.XDel(ctx, "s", "1-0", "77-0").Result()
		say("xdel", d, err)
		g, err := c.XGroupDestroy(ctx, "s", "g").Result()
		say("destroy", g, err)
		c.Close()
	}
}
