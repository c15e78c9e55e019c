# SPDX-License-Identifier: BSD-2-Clause
#
# Sells fruit, until it is ended.
class Shop
  def price(fruit)
    raise ArgumentError, fruit if fruit == "stone"
    fruit.length * 2
  end

  def sell
    %w[apple pear fig stone].each { |fruit| price(fruit) }
  rescue ArgumentError
    nil
  end
end

TracePoint.new(:call, :return) {}.enable
shop = Shop.new
loop do
  50.times { shop.sell }
  sleep 0.01
end
