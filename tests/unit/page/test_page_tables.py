"""Tables of results on the page."""

from choicewise.page.tables import page_table
from choicewise.table import Column, Table


def test_the_page_has_the_columns_that_people_see_and_the_class_of_each() -> None:
    columns = (
        Column(name="model"),
        Column(name="right", heading="right %", kind="share", meaning="of all"),
    )
    shown = page_table(
        Table(
            name="x",
            title="X",
            columns=(*columns, Column(name="id", data=True)),
            rows=[("a", 0.5, 1)],
        )
    )
    assert shown.columns == [("model", ""), ("right %", "number")]
    assert (shown.rows, shown.lines) == ([["a", "50.0"]], ["right %: of all"])
