# SPDX-License-Identifier: BSD-2-Clause
# Passes ruby:raise as often as each line says, in each of four threads.
def charge_card
  raise "refused"
end

def handle_request
  charge_card
rescue RuntimeError
  nil
end

def main_loop(hits)
  hits.times { handle_request }
end

while (line = $stdin.gets)
  threads = Array.new(4) { Thread.new { main_loop(line.to_i) } }
  threads.each(&:join)
  puts "done"
  $stdout.flush
end
