"""Two stored functions that need incompatible releases of one library, called from one session"""
import furca

with furca.Engine() as engine:
    old = engine.create_env('[project]\ndependencies = ["pydantic==1.10.*"]').venv_id
    new = engine.create_env('[project]\ndependencies = ["pydantic==2.*"]').venv_id

    # BaseSettings is gone from release 2, model_validate came with it: neither function runs with the other's release
    engine.add_function("check_old", """
import pydantic
class Order(pydantic.BaseSettings):
    amount: int
def check_old(order):
    return [pydantic.VERSION.split(".")[0], Order(**order).dict()]
""", venv_id=old)
    engine.add_function("check_new", """
import pydantic
class Order(pydantic.BaseModel):
    amount: int
def check_new(order):
    return [pydantic.VERSION.split(".")[0], Order.model_validate(order).model_dump()]
""", venv_id=new)

    audit = engine.session("audit")  # the environments are built here, on first use, and kept
    print(audit.run("[functions.check_old({'amount': '3'}), functions.check_new({'amount': '3'})]").value)
    # [['1', {'amount': 3}], ['2', {'amount': 3}]]
    audit.close()
