// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	phpProbe        = "usdt:FILE:php:"
	functionsFlag   = "USE_ZEND_DTRACE=1"
	accessLog       = "access.log = /dev/null"
	functionsOnly   = "nothing attached, " + functionsFlag
	requestsPeer    = "bpftrace, requests"
	functionsPeer   = "bpftrace, functions by name"
	functionsOfPage = 7
	connections     = 2
)

// Its options are a variable of PHP's environment, and a line of its pool's
// configuration.
var webQuestions = []question{
	{name: untraced},
	{name: "usdttrace --latency, requests",
		command: []string{"usdttrace", "--latency", "php:request", "FILE"}, hits: 2, peer: requestsPeer},
	{name: requestsPeer, command: []string{"bpftrace", "-e", phpProbe +
		"request__startup { @s[tid] = nsecs; } " + phpProbe +
		"request__shutdown /@s[tid]/ { @t[str(arg1)] = hist(nsecs - @s[tid]); delete(@s[tid]); }"}},
	{name: "perf trace, requests, each printed", command: perf("trace", "-a",
		"-e", "PERF:request__startup", "-e", "PERF:request__shutdown")},
	{name: "usdttrace --slow 50ms, requests",
		command: []string{"usdttrace", "--slow", "50ms", "php:request", "FILE"}, hits: 2},
	{name: byStack, hits: 1, peer: ofStack,
		command: []string{"usdttrace", "--count", "--by", "stack", "FILE", "php:request__startup"}},
	{name: ofStack, command: []string{"bpftrace", "-e",
		phpProbe + "request__startup { @[ustack] = count(); }"}},
	{name: "PHP-FPM's access log", options: []string{accessLog}},
	{name: functionsOnly, options: []string{functionsFlag}},
	{name: "usdttrace --count, functions by name", options: []string{functionsFlag},
		command: []string{"usdttrace", "--count", "--by", "str(function,32)", "FILE", "php:function__entry"},
		hits:    functionsOfPage, alone: functionsOnly, peer: functionsPeer},
	{name: functionsPeer, options: []string{functionsFlag},
		command: []string{"bpftrace", "-e", phpProbe + "function__entry { @[str(arg0)] = count(); }"}},
}

const page = `<?php
// SPDX-License-Identifier: BSD-2-Clause
function price($fruit) { return strlen($fruit) * 2; }
function row($fruit) { return "<tr><td>$fruit</td><td>" . price($fruit) . "</td></tr>"; }
foreach (["apple", "pear", "fig"] as $fruit) {
	echo row($fruit);
}
`

const webServer = `daemon off;
master_process off;
pid DIR/nginx.pid;
error_log DIR/nginx.log;
events {}
http {
	access_log off;
	client_body_temp_path DIR;
	proxy_temp_path DIR;
	fastcgi_temp_path DIR;
	uwsgi_temp_path DIR;
	scgi_temp_path DIR;
	server {
		listen unix:DIR/http;
		keepalive_requests 1000000;
		location / {
			fastcgi_pass unix:DIR/fpm;
			fastcgi_param REQUEST_METHOD GET;
			fastcgi_param REQUEST_URI $request_uri;
			fastcgi_param SCRIPT_FILENAME DIR/page.php;
		}
	}
}
`

const webPool = `[global]
error_log = DIR/fpm.log
daemonize = no
[bench]
user = root
listen = DIR/fpm
pm = static
pm.max_children = 2
`

// web is a web site, and for other options another one.
func (e *env) web() (*application, error) {
	managers, _ := filepath.Glob("/usr/sbin/php-fpm*")
	_, err := exec.LookPath("nginx")
	if len(managers) == 0 || err != nil {
		return nil, &unableError{"no /usr/sbin/php-fpm, or no nginx (Debian: php-fpm, nginx)"}
	}
	manager := slices.Max(managers)
	units := e.pick(2000, 400, 10)
	return &application{file: manager, units: units, with: func(options []string) (work, error) {
		client, err := e.site(manager, options)
		if err != nil {
			return nil, err
		}
		return func(units int) (spent, error) { return load(client, units) }, nil
	}}, nil
}

// site starts nginx and PHP-FPM.
func (e *env) site(manager string, options []string) (*http.Client, error) {
	folder, err := os.MkdirTemp(e.dir, "site-")
	if err != nil {
		return nil, err
	}
	pool, environment := webPool, os.Environ()
	for _, option := range options {
		if strings.Contains(option, " = ") {
			pool += option + "\n"
		} else {
			environment = append(environment, option)
		}
	}
	for name, text := range map[string]string{"page.php": page, "nginx.conf": webServer, "fpm.conf": pool} {
		text = strings.ReplaceAll(text, "DIR", folder)
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	for _, command := range [][]string{
		{manager, "--nodaemonize", "--allow-to-run-as-root",
			"--fpm-config", filepath.Join(folder, "fpm.conf")},
		{"nginx", "-p", folder, "-c", filepath.Join(folder, "nginx.conf")},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = environment
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		e.cleanup(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait()
		})
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, "http"))
		}}}
	e.cleanup(client.CloseIdleConnections)
	for end := time.Now().Add(startPatience); ; time.Sleep(10 * time.Millisecond) {
		_, err := load(client, 1)
		if err == nil {
			return client, nil
		}
		if time.Now().After(end) {
			logged, _ := os.ReadFile(filepath.Join(folder, "fpm.log"))
			return nil, errors.Join(err, errors.New(string(logged)))
		}
	}
}

// startPatience is how long servers may take to start.
const startPatience = 10 * time.Second

// load sends requests over all connections.
func load(client *http.Client, requests int) (spent, error) {
	var took [connections][]float64
	var errs [connections]error
	var all sync.WaitGroup
	total, _ := timed(func() error {
		for i := range connections {
			all.Go(func() {
				for range requests {
					one, err := timed(func() error { return get(client) })
					took[i], errs[i] = append(took[i], one), errors.Join(errs[i], err)
				}
			})
		}
		all.Wait()
		return nil
	})
	return spent{total / float64(requests), tailOf(slices.Concat(took[:]...))}, errors.Join(errs[:]...)
}

func get(client *http.Client) error {
	response, err := client.Get("http://bench/page")
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if err == nil && !strings.Contains(string(text), "<td>apple</td>") {
		err = fmt.Errorf("%s: %q", response.Status, text)
	}
	return errors.Join(err, response.Body.Close())
}
