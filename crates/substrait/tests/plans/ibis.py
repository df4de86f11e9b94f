"""Writes the plans that the tests read, as ibis-substrait makes them of tables of which it knows names and types alone.

    pip install ibis-framework==9.5.0 ibis-substrait==4.0.1 substrait==0.21.0
    python ibis.py FOLDER
"""

import datetime
import json
import sys

import ibis
from ibis import _
from ibis_substrait.compiler.core import SubstraitCompiler
from google.protobuf import json_format

number = "decimal(15, 2)"
lineitem = ibis.table(dict(
    l_orderkey="int64", l_partkey="int64", l_suppkey="int64", l_linenumber="int32", l_quantity=number,
    l_extendedprice=number, l_discount=number, l_tax=number, l_returnflag="string", l_linestatus="string",
    l_shipdate="date", l_commitdate="date", l_receiptdate="date", l_shipinstruct="string", l_shipmode="string",
    l_comment="string"), name="lineitem")
orders = ibis.table(dict(
    o_orderkey="int64", o_custkey="int64", o_orderstatus="string", o_totalprice=number, o_orderdate="date",
    o_orderpriority="string", o_clerk="string", o_shippriority="int32", o_comment="string"), name="orders")
customer = ibis.table(dict(
    c_custkey="int64", c_name="string", c_address="string", c_nationkey="int64", c_phone="string", c_acctbal=number,
    c_mktsegment="string", c_comment="string"), name="customer")

def q1():
    t = lineitem.filter(_.l_shipdate <= ibis.literal(datetime.date(1998, 9, 2)))
    price = _.l_extendedprice * (1 - _.l_discount)
    t = t.mutate(disc_price=price)
    return (t.group_by(["l_returnflag", "l_linestatus"])
        .agg(sum_qty=_.l_quantity.sum(), sum_disc_price=_.disc_price.sum(), count_order=_.count())
        .order_by(["l_returnflag", "l_linestatus"]))

def q3():
    t = (customer.filter(_.c_mktsegment == "BUILDING").join(orders, customer.c_custkey == orders.o_custkey))
    t = t.join(lineitem, t.o_orderkey == lineitem.l_orderkey)
    t = t.filter(_.o_orderdate < ibis.literal(datetime.date(1995, 3, 15))).filter(_.l_shipdate > ibis.literal(datetime.date(1995, 3, 15)))
    t = t.mutate(revenue=_.l_extendedprice * (1 - _.l_discount))
    return (t.group_by(["l_orderkey", "o_orderdate", "o_shippriority"]).agg(revenue=_.revenue.sum())
        .order_by([ibis.desc("revenue"), "o_orderdate", "l_orderkey"]).limit(10))

def q6():
    t = lineitem.filter([_.l_shipdate >= ibis.literal(datetime.date(1994, 1, 1)), _.l_shipdate < ibis.literal(datetime.date(1995, 1, 1)),
        _.l_discount >= 0.05, _.l_discount <= 0.07, _.l_quantity < 24])
    return t.agg(revenue=(_.l_extendedprice * _.l_discount).sum())

for make in (q1, q3, q6):
    plan = SubstraitCompiler().compile(make())
    name = f"{sys.argv[1]}/ibis_{make.__name__}"
    if make is q6:
        with open(name + ".json", "w") as file:
            file.write(json.dumps(json_format.MessageToDict(plan), indent=1) + "\n")
    else:
        with open(name + ".bin", "wb") as file:
            file.write(plan.SerializeToString())
