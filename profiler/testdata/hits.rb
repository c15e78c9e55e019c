# SPDX-License-Identifier: BSD-2-Clause
# Passes ruby:object__create as often as each line says, in each of four threads.
class Fruit; end

def make_fruit
  Fruit.new
end

def handle_request
  make_fruit
end

def main_loop(hits)
  hits.times { handle_request }
end

$stdin.each_line do |line|
  Array.new(4) { Thread.new { main_loop(line.to_i) } }.each(&:join)
  puts 'done'
  $stdout.flush
end
