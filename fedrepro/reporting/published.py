"""The former home of the printed numbers, kept until every notebook asks `exhibits.published`."""

from fedrepro.reporting.exhibits import published as load

__all__ = ["load"]
