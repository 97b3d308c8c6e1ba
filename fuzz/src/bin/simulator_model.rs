//! Models of the simulator, in JSON: any text is accepted or rejected.
#![no_main]

use campaign::simulate::model::Model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let model = Model::from_json(text);
    fuzz::expect(model.is_ok());
    if let Ok(model) = model {
        let again = serde_json::to_string(&model).expect("a model has JSON");
        assert!(Model::from_json(&again).is_ok(), "a model that was accepted is rejected");
    }
});
